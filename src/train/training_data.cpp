#include "train/training_data.h"

#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "config/derived.h"
#include "train/load_weights.h"
#include "train/run_folder.h"

namespace weft {

namespace {

void check_same_tokenizer(const TokenFile& first, const TokenFile& other) {
  if (!other.info()) return;
  INPUT_CHECK(first.info()->tokenizer.hash == other.info()->tokenizer.hash, other.path(),
              ": made with a different tokenizer than ", first.path(),
              "; prepare both the same way");
}

// The first file that records its tokenizer, or null.
const TokenFile* first_with_info(const std::vector<WeightedFile>& files) {
  for (const WeightedFile& weighted : files) {
    if (weighted.file.info()) return &weighted.file;
  }
  return nullptr;
}

// The token that ends a document, if documents are masked.
std::optional<int32_t> end_token(const Config& config, const TokenFile& file) {
  if (!config.training.document_mask) return std::nullopt;
  INPUT_CHECK(file.info() && file.info()->end_token, file.path(),
              ": no end token is recorded for it, expected one for training.document_mask = true; "
              "prepare the text with a tokenizer that has one, or set it with --end-token");
  return static_cast<int32_t>(*file.info()->end_token);
}

void check_same_end_token(const Config& config, const TokenFile& first, const TokenFile& other) {
  const std::optional<int32_t> expected = end_token(config, first);
  const std::optional<int32_t> found = end_token(config, other);
  INPUT_CHECK(found == expected, other.path(), ": documents end with token ", found.value_or(-1),
              ", those of ", first.path(), " with ", expected.value_or(-1),
              "; prepare both the same way");
}

// Opens the validation data and checks it against the training files.
std::optional<TokenSource> open_validation(const Config& config,
                                           const std::vector<WeightedFile>& train,
                                           int64_t vocab_size) {
  if (!config.validation.enable) return std::nullopt;
  if (config.validation.dataset_path.empty()) return TokenSource::synthetic(vocab_size);
  TokenFile file = TokenFile::open(config.validation.dataset_path);
  const TokenFile* known = first_with_info(train);
  if (known != nullptr) {
    check_same_tokenizer(*known, file);
  } else {
    check_tokenizer_of_weights(file, config.checkpoint.initial_load_path);
  }
  if (!train.empty()) check_same_end_token(config, train.front().file, file);
  return TokenSource::file(std::move(file), config.training.seq_len, vocab_size);
}

std::optional<Tokenizer> tokenizer_to_save(const Config& config,
                                           const std::vector<WeightedFile>& train) {
  const TokenFile* known = first_with_info(train);
  if (!config.checkpoint.enable || known == nullptr) return std::nullopt;
  return known->tokenizer();
}

void resize(Batch& batch, int64_t tokens) {
  batch.tokens.resize(static_cast<size_t>(tokens));
  batch.targets.resize(static_cast<size_t>(tokens));
}

}  // namespace

void check_tokenizer_of_weights(const TokenFile& data, const std::string& path) {
  const std::string weights = path.empty() ? "" : resolve_weights(path);
  const bool there = !weights.empty() && (path_exists(weights + "/tokenizer.json") ||
                                          path_exists(weights + "/weft_tokenizer.json"));
  if (!data.info() || !there) return;
  check_texts(weights);
  const Tokenizer tokenizer = Tokenizer::open(weights);
  INPUT_CHECK(tokenizer.hash() == data.info()->tokenizer.hash, data.path(), ": made with ",
              data.info()->tokenizer.identity(), ", the tokenizer of ", weights, " is ",
              tokenizer.identity(), "; prepare the data with that one");
}

std::vector<WeightedFile> open_training_files(const Config& config) {
  std::vector<WeightedFile> files;
  for (const TrainingFile& file : training_files(config)) {
    files.push_back({TokenFile::open(file.path), file.weight});
    check_same_end_token(config, files.front().file, files.back().file);
  }
  const TokenFile* known = first_with_info(files);
  if (known == nullptr) return files;
  for (const WeightedFile& weighted : files) check_same_tokenizer(*known, weighted.file);
  check_tokenizer_of_weights(*known, config.checkpoint.initial_load_path);
  return files;
}

int64_t data_vocabulary(const std::vector<WeightedFile>& files) {
  const TokenFile* known = first_with_info(files);
  return known == nullptr ? 0 : known->vocab_size().value_or(0);
}

int64_t data_vocabulary(const Config& config) {
  if (config.model.vocab_size != kVocabularyOfData) return 0;
  return data_vocabulary(open_training_files(config));
}

// Members that read the training files come before the one that takes them over.
TrainingData::TrainingData(const Config& config, std::vector<WeightedFile> train,
                           int64_t vocab_size)
    : seed_(static_cast<uint64_t>(config.debug.seed)),
      batch_size_(config.training.local_batch_size),
      seq_len_(config.training.seq_len),
      validation_(open_validation(config, train, vocab_size)),
      tokenizer_(tokenizer_to_save(config, train)),
      end_token_(train.empty() ? std::nullopt : end_token(config, train.front().file)),
      train_(train.empty() ? TokenSource::synthetic(vocab_size)
                           : TokenSource::mix(std::move(train), seq_len_, vocab_size)) {}

void fill_batch(const TokenSource& source, const BatchSpec& samples, Batch& batch) {
  resize(batch, samples.count * samples.seq_len);
  source.batch(samples, batch.tokens.data(), batch.targets.data());
}

void TrainingData::place_in_documents(Batch& batch) const {
  if (!end_token_) return;
  batch.positions.resize(batch.tokens.size());
  document_positions(batch.tokens, seq_len_, *end_token_, batch.positions.data());
}

void TrainingData::fill(int64_t step, int64_t first_sample, Batch& batch) const {
  fill_batch(train_,
             {.seed = seed_,
              .step = step,
              .first_sample = first_sample,
              .count = batch_size_,
              .seq_len = seq_len_},
             batch);
  place_in_documents(batch);
}

Batch TrainingData::validation_batch(int64_t first) const {
  Batch batch;
  resize(batch, batch_size_ * seq_len_);
  const int64_t windows = validation_->validation_windows(seq_len_);
  for (int64_t s = 0; s < batch_size_; ++s) {
    validation_->validation_batch(
        {.first_window = (first + s) % windows, .count = 1, .seq_len = seq_len_},
        batch.tokens.data() + s * seq_len_, batch.targets.data() + s * seq_len_);
  }
  place_in_documents(batch);
  return batch;
}

BatchPrefetcher::BatchPrefetcher(const TrainingData& data, std::vector<int64_t> first_samples,
                                 int64_t first_step)
    : data_(data),
      first_samples_(std::move(first_samples)),
      first_step_(first_step),
      slots_(first_samples_.size()),
      thread_([this] { work(); }) {}

BatchPrefetcher::~BatchPrefetcher() {
  ended_ = true;
  ++taken_;
  taken_.notify_one();
  thread_.join();
}

void BatchPrefetcher::work() {
  const auto slots = static_cast<int64_t>(slots_.size());
  for (int64_t next = 0;; ++next) {
    for (int64_t taken = taken_; next - taken >= slots; taken = taken_) taken_.wait(taken);
    if (ended_) return;
    const auto at = static_cast<size_t>(next % slots);
    try {
      data_.fill(first_step_ + next / slots, first_samples_[at], slots_[at].batch);
    } catch (...) {
      slots_[at].failure = std::current_exception();
    }
    made_ = next + 1;
    made_.notify_one();
  }
}

std::exception_ptr BatchPrefetcher::failure() {
  const int64_t last = taken_ + static_cast<int64_t>(slots_.size());
  for (int64_t made = made_; made < last; made = made_) made_.wait(made);
  for (const Slot& slot : slots_) {
    if (slot.failure) return slot.failure;
  }
  return nullptr;
}

void BatchPrefetcher::take(Batch& batch) {
  const int64_t next = taken_;
  for (int64_t made = made_; made <= next; made = made_) made_.wait(made);
  Slot& slot = slots_[static_cast<size_t>(next) % slots_.size()];
  if (slot.failure) std::rethrow_exception(slot.failure);
  std::swap(batch, slot.batch);
  taken_ = next + 1;
  taken_.notify_one();
}

}  // namespace weft

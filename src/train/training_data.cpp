#include "train/training_data.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "config/derived.h"

namespace weft {

namespace {

void check_same_tokenizer(const TokenFile& first, const TokenFile& other) {
  if (!first.info() || !other.info()) return;
  INPUT_CHECK(first.info()->tokenizer.hash == other.info()->tokenizer.hash, other.path(),
              ": made with another tokenizer than ", first.path(), "; prepare both alike");
}

// The token that ends a document, where documents are kept apart.
std::optional<int32_t> end_token(const Config& config, const TokenFile& file) {
  if (!config.training.document_mask) return std::nullopt;
  INPUT_CHECK(file.info() && file.info()->end_token, file.path(),
              ": no end token is recorded beside it, expected one for training.document_mask = "
              "true; prepare the text with a tokenizer that has one, or name it by --end-token");
  return static_cast<int32_t>(*file.info()->end_token);
}

void check_same_end_token(const Config& config, const TokenFile& first, const TokenFile& other) {
  const std::optional<int32_t> expected = end_token(config, first);
  const std::optional<int32_t> found = end_token(config, other);
  INPUT_CHECK(found == expected, other.path(), ": documents end with token ", found.value_or(-1),
              ", those of ", first.path(), " with ", expected.value_or(-1), "; prepare both alike");
}

// Weights that come with a tokenizer are of use for its ids alone.
void check_tokenizer_of_weights(const TokenFile& data, const std::string& weights) {
  const bool there =
      path_exists(weights + "/tokenizer.json") || path_exists(weights + "/weft_tokenizer.json");
  if (!data.info() || !there) return;
  const Tokenizer tokenizer = Tokenizer::open(weights);
  INPUT_CHECK(tokenizer.hash() == data.info()->tokenizer.hash, data.path(), ": made with ",
              data.info()->tokenizer.identity(), ", the tokenizer of ", weights, " is ",
              tokenizer.identity(), "; prepare the data with that one");
}

// The validation data, opened beside the training files.
std::optional<TokenSource> open_validation(const Config& config,
                                           const std::vector<WeightedFile>& train,
                                           int64_t vocab_size) {
  if (!config.validation.enable) return std::nullopt;
  if (config.validation.dataset_path.empty()) return TokenSource::synthetic(vocab_size);
  TokenFile file = TokenFile::open(config.validation.dataset_path);
  if (!train.empty()) {
    check_same_tokenizer(train.front().file, file);
    check_same_end_token(config, train.front().file, file);
  }
  return TokenSource::file(std::move(file), config.training.seq_len, vocab_size);
}

std::optional<Tokenizer> tokenizer_to_save(const Config& config,
                                           const std::vector<WeightedFile>& train) {
  if (!config.checkpoint.enable || train.empty() || !train.front().file.info()) return std::nullopt;
  return train.front().file.tokenizer();
}

}  // namespace

int64_t data_vocabulary(const Config& config) {
  if (config.model.vocab_size != kVocabularyOfData) return 0;
  int64_t largest = 0;
  for (const TrainingFile& file : training_files(config)) {
    largest = std::max(largest, TokenFile::open(file.path).vocab_size().value_or(0));
  }
  return largest;
}

std::vector<WeightedFile> open_training_files(const Config& config) {
  std::vector<WeightedFile> files;
  for (const TrainingFile& file : training_files(config)) {
    files.push_back({TokenFile::open(file.path), file.weight});
    check_same_tokenizer(files.front().file, files.back().file);
    check_same_end_token(config, files.front().file, files.back().file);
  }
  const std::string& weights = config.checkpoint.initial_load_path;
  if (!files.empty() && !weights.empty()) check_tokenizer_of_weights(files.front().file, weights);
  return files;
}

// Members that look at the training files come before the one that takes them.
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

Batch TrainingData::empty_batch() const {
  const auto size = static_cast<size_t>(batch_size_ * seq_len_);
  return {.tokens = std::vector<int32_t>(size), .targets = std::vector<int32_t>(size)};
}

void TrainingData::place_in_documents(Batch& batch) const {
  if (end_token_) batch.positions = document_positions(batch.tokens, seq_len_, *end_token_);
}

Batch TrainingData::batch(int64_t step, int64_t first_sample) const {
  Batch batch = empty_batch();
  train_.batch({.seed = seed_,
                .step = step,
                .first_sample = first_sample,
                .count = batch_size_,
                .seq_len = seq_len_},
               batch.tokens.data(), batch.targets.data());
  place_in_documents(batch);
  return batch;
}

Batch TrainingData::validation_batch(int64_t first) const {
  Batch batch = empty_batch();
  const int64_t windows = validation_->validation_windows(seq_len_);
  for (int64_t s = 0; s < batch_size_; ++s) {
    validation_->validation_batch(
        {.first_window = (first + s) % windows, .count = 1, .seq_len = seq_len_},
        batch.tokens.data() + s * seq_len_, batch.targets.data() + s * seq_len_);
  }
  place_in_documents(batch);
  return batch;
}

Batch BatchesAhead::take(int64_t step, int64_t first_sample) {
  Slot& slot = slots_[first_sample];
  Batch batch = slot.step == step ? slot.batch.get() : data_.batch(step, first_sample);
  slot.step = step + 1;
  slot.batch = std::async(std::launch::async, [this, next = slot.step, first_sample] {
    return data_.batch(next, first_sample);
  });
  return batch;
}

}  // namespace weft

// Window positions and synthetic ids come directly from Philox.
#include "data/loader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"

namespace weft {

namespace {

// The ids of synthetic sample `sample`: element (sample, i) of a stream.
void fill_synthetic(PhiloxKey key, int64_t step, int64_t sample, int64_t seq_len,
                    int64_t vocab_size, int32_t* tokens, int32_t* targets) {
  const auto id = [&](int64_t i) {
    const uint64_t element = (static_cast<uint64_t>(sample) << 32) + static_cast<uint64_t>(i);
    const uint64_t bits = random_bits(key, static_cast<uint64_t>(step), element);
    return static_cast<int32_t>((bits * static_cast<uint64_t>(vocab_size)) >> 32);
  };
  for (int64_t i = 0; i < seq_len; ++i) {
    tokens[i] = i == 0 ? id(0) : targets[i - 1];
    targets[i] = id(i + 1);
  }
}

// Every file of a mix has its own stream; that of a single file does not depend on mixes.
PhiloxKey window_key(uint64_t seed, size_t file) {
  return random_key(seed, hash_text(file == 0 ? "data.windows" : cat("data.windows.", file)));
}

}  // namespace

TokenSource::TokenSource(std::vector<WeightedFile> files, int64_t vocab_size)
    : files_(std::move(files)), vocab_size_(vocab_size) {
  for (const WeightedFile& file : files_) total_weight_ += file.weight;
}

TokenSource TokenSource::synthetic(int64_t vocab_size) {
  CHECK(vocab_size >= 1 && vocab_size <= INT32_MAX, "vocabulary of ", vocab_size);
  return TokenSource({}, vocab_size);
}

TokenSource TokenSource::file(TokenFile file, int64_t seq_len, int64_t vocab_size) {
  std::vector<WeightedFile> files;
  files.push_back({std::move(file), 1.0});
  return mix(std::move(files), seq_len, vocab_size);
}

TokenSource TokenSource::mix(std::vector<WeightedFile> files, int64_t seq_len, int64_t vocab_size) {
  CHECK(!files.empty() && vocab_size >= 1 && vocab_size <= INT32_MAX, files.size(), vocab_size);
  for (const WeightedFile& weighted : files) {
    const TokenFile& file = weighted.file;
    CHECK(weighted.weight > 0, file.path(), weighted.weight);
    INPUT_CHECK(file.size() > seq_len, file.path(), ": file has ", file.size(),
                " tokens, expected at least ", seq_len + 1, " for one window of ", seq_len,
                "; use more text or a smaller training.seq_len");
    file.check_vocabulary(vocab_size);
  }
  return TokenSource(std::move(files), vocab_size);
}

// Copies window `begin` of a file and the window one token later. The ids were checked when the
// file was opened, but the file may have been overwritten since.
void TokenSource::copy_window(const TokenFile& file, int64_t begin, int64_t seq_len,
                              int32_t* tokens, int32_t* targets) const {
  constexpr std::string_view kAdvice =
      "the file has changed since the run began, restore it and start again";
  const std::span<int32_t> window(tokens, static_cast<size_t>(seq_len));
  file.read(begin, window);
  file.check_ids(begin, window, vocab_size_, kAdvice);
  std::copy(window.begin() + 1, window.end(), targets);
  const std::span<int32_t> last(targets + seq_len - 1, 1);
  file.read(begin + seq_len, last);
  file.check_ids(begin + seq_len, last, vocab_size_, kAdvice);
}

size_t TokenSource::choose_file(const BatchSpec& spec, int64_t sample) const {
  if (files_.size() == 1) return 0;
  constexpr uint64_t kSteps = uint64_t{1} << 53;
  const PhiloxKey key = random_key(spec.seed, hash_text("data.mix"));
  const uint64_t draw =
      random_below(key, static_cast<uint64_t>(spec.step), static_cast<uint64_t>(sample), kSteps);
  double left = static_cast<double>(draw) / static_cast<double>(kSteps) * total_weight_;
  for (size_t i = 0; i + 1 < files_.size(); ++i) {
    left -= files_[i].weight;
    if (left < 0) return i;
  }
  return files_.size() - 1;
}

void TokenSource::batch(const BatchSpec& spec, int32_t* tokens, int32_t* targets) const {
  const PhiloxKey synthetic_key = random_key(spec.seed, hash_text("data.synthetic"));
  for (int64_t i = 0; i < spec.count; ++i) {
    const int64_t sample = spec.first_sample + i;
    int32_t* x = tokens + i * spec.seq_len;
    int32_t* y = targets + i * spec.seq_len;
    if (files_.empty()) {
      fill_synthetic(synthetic_key, spec.step, sample, spec.seq_len, vocab_size_, x, y);
      continue;
    }
    const size_t chosen = choose_file(spec, sample);
    const TokenFile& file = files_[chosen].file;
    const auto places = static_cast<uint64_t>(file.size() - spec.seq_len);
    const uint64_t begin =
        random_below(window_key(spec.seed, chosen), static_cast<uint64_t>(spec.step),
                     static_cast<uint64_t>(sample), places);
    copy_window(file, static_cast<int64_t>(begin), spec.seq_len, x, y);
  }
}

int64_t TokenSource::validation_windows(int64_t seq_len) const {
  const TokenFile* file = token_file();
  return file != nullptr ? (file->size() - 1) / seq_len : int64_t{1} << 20;
}

void TokenSource::validation_batch(const ValidationSpec& spec, int32_t* tokens,
                                   int32_t* targets) const {
  CHECK(spec.first_window + spec.count <= validation_windows(spec.seq_len), "window ",
        spec.first_window + spec.count, " of ", validation_windows(spec.seq_len));
  const PhiloxKey key = random_key(0, hash_text("data.synthetic.validation"));
  for (int64_t i = 0; i < spec.count; ++i) {
    const int64_t window = spec.first_window + i;
    int32_t* x = tokens + i * spec.seq_len;
    int32_t* y = targets + i * spec.seq_len;
    if (token_file() != nullptr) {
      copy_window(*token_file(), window * spec.seq_len, spec.seq_len, x, y);
    } else {
      fill_synthetic(key, 0, window, spec.seq_len, vocab_size_, x, y);
    }
  }
}

void document_positions(std::span<const int32_t> tokens, int64_t seq_len, int32_t end_token,
                        int32_t* positions) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool starts = i % static_cast<size_t>(seq_len) == 0 || tokens[i - 1] == end_token;
    positions[i] = starts ? 0 : positions[i - 1] + 1;
  }
}

std::vector<int32_t> document_positions(std::span<const int32_t> tokens, int64_t seq_len,
                                        int32_t end_token) {
  std::vector<int32_t> positions(tokens.size());
  document_positions(tokens, seq_len, end_token, positions.data());
  return positions;
}

}  // namespace weft

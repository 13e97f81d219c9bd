// Where windows start, and the ids of the synthetic source, come straight from Philox.
#include "data/loader.h"

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

}  // namespace

TokenSource::TokenSource(std::optional<TokenFile> file, int64_t vocab_size)
    : file_(std::move(file)), vocab_size_(vocab_size) {}

TokenSource TokenSource::synthetic(int64_t vocab_size) {
  CHECK(vocab_size >= 1 && vocab_size <= INT32_MAX, "vocabulary of ", vocab_size);
  return TokenSource(std::nullopt, vocab_size);
}

TokenSource TokenSource::file(TokenFile file, int64_t seq_len, int64_t vocab_size) {
  CHECK(vocab_size >= 1 && vocab_size <= INT32_MAX, "vocabulary of ", vocab_size);
  INPUT_CHECK(file.size() > seq_len, file.path(), ": file has ", file.size(),
              " tokens, expected at least ", seq_len + 1, " for one window of ", seq_len,
              "; use more text or a smaller training.seq_len");
  file.check_vocabulary(vocab_size);
  return TokenSource(std::move(file), vocab_size);
}

void TokenSource::batch(const BatchSpec& spec, int32_t* tokens, int32_t* targets) const {
  const PhiloxKey key = random_key(spec.seed, hash_text(file_ ? "data.windows" : "data.synthetic"));
  for (int64_t i = 0; i < spec.count; ++i) {
    const int64_t sample = spec.first_sample + i;
    int32_t* x = tokens + i * spec.seq_len;
    int32_t* y = targets + i * spec.seq_len;
    if (!file_) {
      fill_synthetic(key, spec.step, sample, spec.seq_len, vocab_size_, x, y);
      continue;
    }
    const auto places = static_cast<uint64_t>(file_->size() - spec.seq_len);
    const uint64_t begin =
        random_below(key, static_cast<uint64_t>(spec.step), static_cast<uint64_t>(sample), places);
    copy_window(static_cast<int64_t>(begin), spec.seq_len, x, y);
  }
}

int64_t TokenSource::validation_windows(int64_t seq_len) const {
  return file_ ? (file_->size() - 1) / seq_len : int64_t{1} << 20;
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
    if (file_) {
      copy_window(window * spec.seq_len, spec.seq_len, x, y);
    } else {
      fill_synthetic(key, 0, window, spec.seq_len, vocab_size_, x, y);
    }
  }
}

void TokenSource::copy_window(int64_t begin, int64_t seq_len, int32_t* tokens,
                              int32_t* targets) const {
  for (int64_t i = 0; i < seq_len; ++i) {
    tokens[i] = static_cast<int32_t>(file_->at(begin + i));
    targets[i] = static_cast<int32_t>(file_->at(begin + i + 1));
  }
}

}  // namespace weft

// Batches of tokens for training and validation. A training batch is a pure function of (seed,
// step, global sample index): any rank, in any order, at any world size, gets the same windows, and
// a resumed run needs no loader state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/token_file.h"

namespace weft {

// Which samples of which step; a sample is a window of seq_len tokens and the window one later.
struct BatchSpec {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sample = 0;  // index in the global batch of this step
  int64_t count = 0;
  int64_t seq_len = 0;
};

// Validation windows, by their position in the file.
struct ValidationSpec {
  int64_t first_window = 0;
  int64_t count = 0;
  int64_t seq_len = 0;
};

// One file of a mix; weights are positive and need not sum to 1.
struct WeightedFile {
  TokenFile file;
  double weight = 1;
};

class TokenSource {
 public:
  // Uniformly random ids below `vocab_size`, without a file.
  static TokenSource synthetic(int64_t vocab_size);

  // Windows of a file of at least seq_len + 1 tokens, all below `vocab_size`.
  static TokenSource file(TokenFile file, int64_t seq_len, int64_t vocab_size);

  // Windows of several such files: each sample comes from one of them, in proportion to the
  // weights. Validation reads the first file.
  static TokenSource mix(std::vector<WeightedFile> files, int64_t seq_len, int64_t vocab_size);

  // Fills count x seq_len tokens and targets: sample g starts at a uniformly random position.
  void batch(const BatchSpec& spec, int32_t* tokens, int32_t* targets) const;

  // Number of consecutive windows of this length; 2^20 for synthetic ids.
  int64_t validation_windows(int64_t seq_len) const;

  // Fills count x seq_len tokens and targets: window w starts at token w * seq_len.
  void validation_batch(const ValidationSpec& spec, int32_t* tokens, int32_t* targets) const;

  // The first file, or null.
  const TokenFile* token_file() const { return files_.empty() ? nullptr : &files_.front().file; }

 private:
  TokenSource(std::vector<WeightedFile> files, int64_t vocab_size);

  // Which file a sample comes from.
  size_t choose_file(const BatchSpec& spec, int64_t sample) const;
  void copy_window(const TokenFile& file, int64_t begin, int64_t seq_len, int32_t* tokens,
                   int32_t* targets) const;

  std::vector<WeightedFile> files_;  // empty: synthetic
  int64_t vocab_size_;
  double total_weight_ = 0;
};

// For every token in rows of seq_len: its distance from the start of its document, or from the
// start of the row if the document starts earlier. The token after an end token starts a document.
void document_positions(std::span<const int32_t> tokens, int64_t seq_len, int32_t end_token,
                        int32_t* positions);
std::vector<int32_t> document_positions(std::span<const int32_t> tokens, int64_t seq_len,
                                        int32_t end_token);

}  // namespace weft

// Trains a byte-level BPE: the most frequent pair of neighbours becomes a token, again and again.
// Words are counted by several threads; the merges depend on the counts alone, of equal pairs the
// one with the smaller ids comes first, so the result is always the same.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "data/bpe_tokenizer.h"

namespace weft {

struct TrainBpeOptions {
  std::vector<std::string> inputs;  // text files, .jsonl files, and folders of them
  std::string field = "text";       // of a .jsonl file's objects
  int64_t vocab_size = 0;           // bytes, merges and special tokens together
  SplitPattern pattern = SplitPattern::Gpt2;
  std::vector<std::string> special = {};  // take the last ids
  int64_t threads = 0;                    // 0: every core
  ProgressOptions progress = {};
};

// A word and how often it occurs.
using WordCount = std::pair<std::string, int64_t>;

// The merges of these words, `most` of them at most: ids of single bytes are in the order of the
// byte alphabet, merged tokens follow. Fewer when no pair is left.
std::vector<Merge> train_merges(const std::vector<WordCount>& words, int64_t most);

// Trains a tokenizer on text; when the text has too few pairs the vocabulary is smaller.
BpeParts train_bpe(const TrainBpeOptions& options);

}  // namespace weft

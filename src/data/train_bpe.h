// Trains a byte-level BPE: the most frequent pair of neighbours becomes a token, repeatedly.
// Several threads count words. The merges depend only on the counts, and ties go to the pair with
// the smaller ids, so the result is always the same.
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
  std::string field = "text";       // of the objects in a .jsonl file
  int64_t vocab_size = 0;           // bytes, merges and special tokens together
  SplitPattern pattern = SplitPattern::Gpt2;
  std::vector<std::string> special = {};  // get the last ids
  int64_t threads = 0;                    // 0: every core
  ProgressOptions progress = {};
};

// A word and how often it occurs.
using WordCount = std::pair<std::string, int64_t>;

// At most `most` merges of these words, fewer when no pair is left. Ids of single bytes are in the
// order of the byte alphabet; merged tokens follow.
std::vector<Merge> train_merges(const std::vector<WordCount>& words, int64_t most);

// Trains a tokenizer on text; if the text has too few pairs, the vocabulary is smaller.
BpeParts train_bpe(const TrainBpeOptions& options);

}  // namespace weft

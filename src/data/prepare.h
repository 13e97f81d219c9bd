// Turns text into token files: <folder>/train.bin and val.bin with their JSON files. Text is mapped
// and never held in memory; all outputs are complete on disk before the first one gets its name.
//
// Character and byte tokenizers make two passes (vocabulary and count, then encoding) and train on
// the first (1 - validation_fraction) of all tokens. BPE makes one multithreaded pass and trains on
// the first part of the text; a killed run resumes where it stopped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "data/tokenizer.h"

namespace weft {

struct PrepareOptions {
  std::vector<std::string> inputs;  // text files, .jsonl files, and folders of them
  std::string output_folder;
  TokenizerKind tokenizer = TokenizerKind::Char;
  std::optional<Tokenizer> merges = {};  // for TokenizerKind::Bpe
  std::string end_token = {};            // text of the added token between documents; empty: none
  std::string field = "text";            // of the objects in a .jsonl file
  double validation_fraction = 0.1;      // 0: no validation file
  int64_t threads = 0;                   // 0: every core; the result does not depend on it
  ProgressOptions progress = {};
};

struct PrepareResult {
  Tokenizer tokenizer = Tokenizer::bytes();
  int64_t train_tokens = 0;
  int64_t validation_tokens = 0;
  std::vector<std::string> written = {};  // paths of the token files
  std::string removed = {};               // path of an earlier run's validation data, now deleted
  bool resumed = false;                   // whether an interrupted run was resumed
};

// Prepares the data.
PrepareResult prepare(const PrepareOptions& options);

}  // namespace weft

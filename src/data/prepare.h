// Turns text into token files: <folder>/train.bin and val.bin with their JSONs. The text is mapped
// and walked twice (vocabulary and count, then encoding), never held; all outputs are complete on
// disk before the first of them gets its name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "data/tokenizer.h"

namespace weft {

struct PrepareOptions {
  std::vector<std::string> inputs;  // text files, and folders of them
  std::string output_folder;
  TokenizerKind tokenizer = TokenizerKind::Char;
  double validation_fraction = 0.1;  // 0: no validation file
  ProgressOptions progress;
};

struct PrepareResult {
  Tokenizer tokenizer = Tokenizer::bytes();
  int64_t train_tokens = 0;
  int64_t validation_tokens = 0;
  std::vector<std::string> written;  // paths of the token files
};

// The files that the inputs name: folders are walked in the order of paths, leaving out hidden and
// empty files.
std::vector<std::string> list_text_files(const PrepareOptions& options);

// Prepares the data: the first (1 - validation_fraction) of all tokens train, the rest validate.
PrepareResult prepare(const PrepareOptions& options);

}  // namespace weft

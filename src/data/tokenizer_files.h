// The other files that hold byte-pair tokenizers: GPT-2's encoder.json with vocab.bpe (Hugging Face
// calls them vocab.json and merges.txt), and tiktoken's lists of ranks; and one function that opens
// whatever a path names.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe_tokenizer.h"

namespace weft {

// Reads encoder.json and vocab.bpe; tokens that are neither a byte nor made of others are special.
BpeParts parse_gpt2_files(std::string_view encoder, std::string_view encoder_where,
                          std::string_view merges, std::string_view merges_where);

// What a .tiktoken file does not say.
struct TiktokenOptions {
  SplitPattern pattern = SplitPattern::Gpt2;
  std::vector<AddedToken> special;
};

// Reads lines of "base64 rank". Any two neighbours that are a token together merge, lowest rank
// first. Special tokens become part of the vocabulary, because Hugging Face numbers the others
// itself.
BpeParts parse_tiktoken(std::string_view text, std::string_view where,
                        const TiktokenOptions& options);

// A tokenizer and the tokenizer.json that is kept beside what it made.
struct LoadedBpe {
  std::shared_ptr<const BpeTokenizer> tokenizer;
  std::string json;
};

struct LoadBpeOptions {
  std::string pattern;  // a name of split_pattern, where the file does not say; empty: GPT-2's
  std::vector<std::string> special;  // of a .tiktoken file: "text=id"
};

// Opens tokenizer.json, encoder.json, vocab.json, a .tiktoken file, or a folder with one of them.
LoadedBpe load_bpe(const std::string& path, const LoadBpeOptions& options = {});

// The same from the text of a tokenizer.json.
LoadedBpe bpe_from_json(std::string text, std::string_view where);

}  // namespace weft

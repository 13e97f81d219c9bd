// The other files of byte-pair tokenizers: GPT-2's encoder.json with vocab.bpe (vocab.json and
// merges.txt at Hugging Face), and tiktoken's rank lists. One function opens any of them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe_tokenizer.h"

namespace weft {

// Reads encoder.json and vocab.bpe; tokens that are neither bytes nor merged are special.
BpeParts parse_gpt2_files(std::string_view encoder, std::string_view encoder_where,
                          std::string_view merges, std::string_view merges_where);

// What a .tiktoken file does not contain.
struct TiktokenOptions {
  SplitPattern pattern = SplitPattern::Gpt2;
  std::vector<AddedToken> special;
};

// Reads lines of "base64 rank". Any two neighbours that form a token together merge, lowest rank
// first. Special tokens become part of the vocabulary, because Hugging Face assigns its own ids to
// other added tokens.
BpeParts parse_tiktoken(std::string_view text, std::string_view where,
                        const TiktokenOptions& options);

// A tokenizer and the tokenizer.json that is stored next to what it made.
struct LoadedBpe {
  std::shared_ptr<const BpeTokenizer> tokenizer;
  std::string json;
};

struct LoadBpeOptions {
  std::string pattern;               // of split_pattern, if the file has none; empty: GPT-2's
  std::vector<std::string> special;  // of a .tiktoken file: "text=id"
};

// Opens tokenizer.json, encoder.json, vocab.json, a .tiktoken file, or a folder with one of them.
LoadedBpe load_bpe(const std::string& path, const LoadBpeOptions& options = {});

// The same from the text of a tokenizer.json.
LoadedBpe bpe_from_json(std::string text, std::string_view where);

}  // namespace weft

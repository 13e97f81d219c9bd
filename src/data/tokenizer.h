// A tokenizer of any kind: one id per character of a vocabulary (sorted code points, as in
// nanoGPT's character data), one id per byte, or byte-pair merges. A tokenizer is a value. Its hash
// identifies the vocabulary, so that data and weights of different tokenizers are not mixed.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer_files.h"

namespace weft {

enum class TokenizerKind { Char, Byte, Bpe };

// "char", "byte" or "bpe".
const char* name_of(TokenizerKind kind);

// The kind of this name, if any.
std::optional<TokenizerKind> tokenizer_kind(std::string_view name);

// For logs and comparisons: "char, 65 ids, 0123456789abcdef".
std::string tokenizer_identity(TokenizerKind kind, int64_t vocab_size, uint64_t hash);

class Tokenizer {
 public:
  // One id per byte: 256 ids.
  static Tokenizer bytes();

  // One id per character; `vocabulary` is sorted and without duplicates.
  static Tokenizer characters(std::vector<char32_t> vocabulary);

  // Byte-pair merges.
  static Tokenizer bpe(LoadedBpe loaded);

  // The tokenizer stored in a folder of weights: tokenizer.json, or another format of load_bpe.
  static Tokenizer open(const std::string& folder);

  // The tokenizer in the text of a tokenizer.json; `where` starts every error message.
  static Tokenizer from_file_text(std::string text, std::string_view where);

  // Reads what to_json wrote and checks it against its hash; `where` starts every error message.
  static Tokenizer from_json(const nlohmann::json& json, std::string_view where);

  // {"kind", "hash"} and, for characters, "vocab": all of them in one string. Not for merges.
  nlohmann::json to_json() const;

  // The file stored next to data and weights, which Hugging Face can open.
  static constexpr const char* kFileName = "tokenizer.json";
  std::string file_text() const;

  // The tokenizer_config.json that makes transformers use that file unchanged; the model accepts at
  // most `max_tokens`.
  std::string config_text(int64_t max_tokens) const;

  TokenizerKind kind() const { return kind_; }
  int64_t vocab_size() const;
  uint64_t hash() const;

  std::string identity() const { return tokenizer_identity(kind_, vocab_size(), hash()); }

  // The id of a character; -1 when the vocabulary lacks it.
  int32_t id_of(char32_t code_point) const;

  // The merges and their tables; only for Bpe.
  const LoadedBpe& merges() const;

  // The tokens that begin and end a document, if the tokenizer has them.
  std::optional<int32_t> begin_token() const;
  std::optional<int32_t> end_token() const;

  // The ids of a text, special tokens included; a UserError names the byte of an invalid or unknown
  // character.
  std::vector<int32_t> encode(std::string_view text, std::string_view where) const;

  // The text of these ids; an id beyond the vocabulary becomes U+FFFD.
  std::string decode(std::span<const int32_t> ids) const;

 private:
  explicit Tokenizer(TokenizerKind kind) : kind_(kind) {}

  TokenizerKind kind_;
  std::vector<char32_t> vocabulary_;  // empty for bytes
  std::vector<int32_t> ids_;          // by code point, -1: none
  LoadedBpe bpe_;                     // empty unless Bpe
};

}  // namespace weft

// Tokenizers without merges: one id per character of a vocabulary (sorted code points, as nanoGPT's
// character data has it), or one id per byte. A tokenizer is a value; its hash names the
// vocabulary, so that data and weights made for different ones are told apart.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

enum class TokenizerKind { Char, Byte };

// "char" or "byte".
const char* name_of(TokenizerKind kind);

// The kind of this name; a UserError(Config) naming the choices when there is none.
TokenizerKind tokenizer_kind(std::string_view name);

class Tokenizer {
 public:
  // One id per byte: 256 ids.
  static Tokenizer bytes();

  // One id per character; `vocabulary` is sorted and without duplicates.
  static Tokenizer characters(std::vector<char32_t> vocabulary);

  // Reads what to_json wrote and checks it against its hash; `where` opens every error message.
  static Tokenizer from_json(const nlohmann::json& json, std::string_view where);

  // {"kind", "hash"} and, for characters, "vocab": all of them in one string.
  nlohmann::json to_json() const;

  TokenizerKind kind() const { return kind_; }
  int64_t vocab_size() const;
  uint64_t hash() const;

  // For logs and comparisons: "char, 65 ids, 0123456789abcdef".
  std::string identity() const;

  // The id of a character, -1 when the vocabulary lacks it.
  int32_t id_of(char32_t code_point) const;

  // The ids of a text; a UserError names the byte of an invalid or unknown character.
  std::vector<int32_t> encode(std::string_view text, std::string_view where) const;

  // The text of these ids; an id beyond the vocabulary becomes U+FFFD.
  std::string decode(std::span<const int32_t> ids) const;

 private:
  explicit Tokenizer(TokenizerKind kind) : kind_(kind) {}

  TokenizerKind kind_;
  std::vector<char32_t> vocabulary_;  // empty for bytes
  std::vector<int32_t> ids_;          // by code point, -1 where there is none
};

}  // namespace weft

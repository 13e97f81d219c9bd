// Character and byte tokenizers, and the interface of all kinds.
#include "data/tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "data/tokenizer_json.h"
#include "data/utf8.h"

namespace weft {

namespace {

// Weft's own format, which older versions wrote next to their weights.
constexpr const char* kOwnFile = "weft_tokenizer.json";
constexpr int64_t kMaxOwnBytes = int64_t{16} << 20;

// The byte tokenizer as BPE without merges.
BpeParts byte_parts() {
  BpeParts parts;
  for (int32_t byte = 0; byte < 256; ++byte) {
    parts.tokens.emplace_back(byte, std::string(1, static_cast<char>(byte)));
  }
  return parts;
}

std::string code_point_name(char32_t code_point) {
  char name[16];
  std::snprintf(name, sizeof name, "U+%04X", static_cast<unsigned>(code_point));
  return name;
}

std::vector<char32_t> read_vocabulary(const std::string& text, std::string_view where) {
  std::vector<char32_t> vocabulary;
  for (size_t at = 0; at < text.size();) {
    const std::optional<char32_t> code_point = next_code_point(text, at);
    CHECK(code_point, "JSON that is not UTF-8 was read", at);
    INPUT_CHECK(vocabulary.empty() || vocabulary.back() < *code_point, where,
                ": \"vocab\" is not in order at ", code_point_name(*code_point),
                ", expected rising code points");
    vocabulary.push_back(*code_point);
  }
  INPUT_CHECK(!vocabulary.empty(), where, ": \"vocab\" is empty");
  return vocabulary;
}

}  // namespace

const char* name_of(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::Char:
      return "char";
    case TokenizerKind::Byte:
      return "byte";
    case TokenizerKind::Bpe:
      return "bpe";
  }
  CHECK(false, static_cast<int>(kind));
}

std::optional<TokenizerKind> tokenizer_kind(std::string_view name) {
  for (const auto kind : {TokenizerKind::Char, TokenizerKind::Byte, TokenizerKind::Bpe}) {
    if (name == name_of(kind)) return kind;
  }
  return std::nullopt;
}

std::string tokenizer_identity(TokenizerKind kind, int64_t vocab_size, uint64_t hash) {
  return cat(name_of(kind), ", ", vocab_size, " ids, ", hex64(hash));
}

Tokenizer Tokenizer::bytes() {
  return Tokenizer(TokenizerKind::Byte);
}

Tokenizer Tokenizer::characters(std::vector<char32_t> vocabulary) {
  CHECK(!vocabulary.empty() && is_code_point(vocabulary.back()), "vocabulary of characters");
  CHECK(std::adjacent_find(vocabulary.begin(), vocabulary.end(), std::greater_equal<>()) ==
            vocabulary.end(),
        "vocabulary is not sorted");
  Tokenizer tokenizer(TokenizerKind::Char);
  tokenizer.ids_.assign(vocabulary.back() + 1, -1);
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    tokenizer.ids_[vocabulary[i]] = static_cast<int32_t>(i);
  }
  tokenizer.vocabulary_ = std::move(vocabulary);
  return tokenizer;
}

Tokenizer Tokenizer::bpe(LoadedBpe loaded) {
  CHECK(loaded.tokenizer != nullptr, "no tokenizer");
  Tokenizer tokenizer(TokenizerKind::Bpe);
  tokenizer.bpe_ = std::move(loaded);
  return tokenizer;
}

Tokenizer Tokenizer::open(const std::string& folder) {
  const std::string own = folder + "/" + kOwnFile;
  const std::string file = folder + "/" + kFileName;
  if (!path_exists(file) && path_exists(own)) {
    return from_json(read_json_file(own, kMaxOwnBytes), own);
  }
  if (!path_exists(file)) return bpe(load_bpe(folder));
  return from_file_text(read_text_file(file, kMaxTokenizerBytes), file);
}

Tokenizer Tokenizer::from_file_text(std::string text, std::string_view where) {
  const nlohmann::json root = parse_json(text, where);
  if (std::optional<std::vector<char32_t>> vocabulary = parse_char_json(root, where)) {
    return characters(std::move(*vocabulary));
  }
  auto merges = std::make_shared<const BpeTokenizer>(parse_bpe_json(root, where));
  static const uint64_t bytes_hash = BpeTokenizer(byte_parts()).hash();
  if (merges->hash() == bytes_hash) return bytes();
  return bpe({std::move(merges), std::move(text)});
}

Tokenizer Tokenizer::from_json(const nlohmann::json& json, std::string_view where) {
  const std::string kind = json_string(json, "kind", where);
  INPUT_CHECK(kind == "char" || kind == "byte", where, ": tokenizer ", in_quotes(kind),
              " is unknown, expected char or byte");
  Tokenizer tokenizer = kind == "byte"
                            ? bytes()
                            : characters(read_vocabulary(json_string(json, "vocab", where), where));
  const std::string claimed = json_string(json, "hash", where);
  const std::string actual = hex64(tokenizer.hash());
  INPUT_CHECK(claimed == actual, where, ": tokenizer hash is ", in_quotes(claimed), ", expected \"",
              actual, "\" for this vocabulary");
  return tokenizer;
}

nlohmann::json Tokenizer::to_json() const {
  CHECK(kind_ != TokenizerKind::Bpe, "merges have a file of their own");
  nlohmann::json json = {{"kind", name_of(kind_)}, {"hash", hex64(hash())}};
  if (kind_ == TokenizerKind::Char) {
    std::string vocabulary;
    for (const char32_t code_point : vocabulary_) append_utf8(vocabulary, code_point);
    json["vocab"] = vocabulary;
  }
  return json;
}

std::string Tokenizer::file_text() const {
  switch (kind_) {
    case TokenizerKind::Char:
      return char_json(vocabulary_).dump(2) + "\n";
    case TokenizerKind::Byte:
      return tokenizer_json_text(byte_parts());
    case TokenizerKind::Bpe:
      return bpe_.json;
  }
  CHECK(false, static_cast<int>(kind_));
}

std::string Tokenizer::config_text(int64_t max_tokens) const {
  nlohmann::ordered_json json;
  if (const auto id = begin_token()) json["bos_token"] = decode(std::span(&*id, 1));
  json["clean_up_tokenization_spaces"] = false;
  if (const auto id = end_token()) json["eos_token"] = decode(std::span(&*id, 1));
  json["model_max_length"] = max_tokens;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  return json.dump(2) + "\n";
}

const LoadedBpe& Tokenizer::merges() const {
  CHECK(kind_ == TokenizerKind::Bpe, name_of(kind_));
  return bpe_;
}

std::optional<int32_t> Tokenizer::begin_token() const {
  if (kind_ != TokenizerKind::Bpe) return std::nullopt;
  return bpe_.tokenizer->begin_token();
}

std::optional<int32_t> Tokenizer::end_token() const {
  if (kind_ != TokenizerKind::Bpe) return std::nullopt;
  return bpe_.tokenizer->end_token();
}

int64_t Tokenizer::vocab_size() const {
  if (kind_ == TokenizerKind::Bpe) return bpe_.tokenizer->vocab_size();
  return kind_ == TokenizerKind::Byte ? 256 : static_cast<int64_t>(vocabulary_.size());
}

uint64_t Tokenizer::hash() const {
  if (kind_ == TokenizerKind::Bpe) return bpe_.tokenizer->hash();
  Hasher hasher;
  hasher.add(std::string_view(name_of(kind_)));
  for (const char32_t code_point : vocabulary_) hasher.add(uint64_t{code_point});
  return hasher.value();
}

int32_t Tokenizer::id_of(char32_t code_point) const {
  return code_point < ids_.size() ? ids_[code_point] : -1;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, std::string_view where) const {
  std::vector<int32_t> ids;
  if (kind_ == TokenizerKind::Bpe) {
    BpeEncoder(*bpe_.tokenizer, Specials::AsTokens).encode(text, {where}, ids);
    return ids;
  }
  ids.reserve(text.size());
  if (kind_ == TokenizerKind::Byte) {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const std::optional<char32_t> code_point = next_code_point(text, at);
    INPUT_CHECK(code_point, where, ": invalid UTF-8 at byte ", begin);
    ids.push_back(id_of(*code_point));
    INPUT_CHECK(ids.back() >= 0, where, ": character ", code_point_name(*code_point), " at byte ",
                begin, " is not in the vocabulary");
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      append_utf8(text, 0xfffd);
    } else if (kind_ == TokenizerKind::Bpe) {
      text += bpe_.tokenizer->decode(id);
    } else if (kind_ == TokenizerKind::Byte) {
      text += static_cast<char>(id);
    } else {
      append_utf8(text, vocabulary_[static_cast<size_t>(id)]);
    }
  }
  return text;
}

}  // namespace weft

// Hugging Face's tokenizer.json, for byte-level BPE models: added tokens, an NFC normalizer or
// none, a known split pattern, merges as "a b" or ["a", "b"]. What changes ids and is not known is
// refused; what does not (padding, truncation, templates, decoders) is left alone. A vocabulary of
// characters is a model of words there, of which each is one character.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/bpe_tokenizer.h"

namespace weft {

// Ids are below this; it bounds the memory that a hostile file can claim.
inline constexpr int64_t kMaxTokenId = int64_t{1} << 22;

// No tokenizer file is larger than this.
inline constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

// Reads and checks a tokenizer.json; `where` opens every error message.
BpeParts parse_tokenizer_json(std::string_view text, std::string_view where);
BpeParts parse_bpe_json(const nlohmann::json& root, std::string_view where);

// The tokenizer.json of a vocabulary of characters in order, and the vocabulary of such a file;
// nothing for a file whose model is of another type.
nlohmann::json char_json(std::span<const char32_t> vocabulary);
std::optional<std::vector<char32_t>> parse_char_json(const nlohmann::json& root,
                                                     std::string_view where);

// The text of a tokenizer.json that Hugging Face opens.
std::string tokenizer_json_text(const BpeParts& parts);

// A vocabulary of a JSON file: ids by the text of the file.
using TextVocabulary = std::unordered_map<std::string, int32_t>;

// Reads {"text": id, ...}; ids are distinct.
TextVocabulary parse_vocabulary(const nlohmann::json& json, std::string_view where);

// Its ids with the bytes that the texts stand for; a text outside the byte alphabet is its own.
std::vector<std::pair<int32_t, std::string>> vocabulary_bytes(const TextVocabulary& vocabulary);

// Appends the merge of two texts of a vocabulary; `number` counts merges from 1, for messages.
void add_merge(const TextVocabulary& vocabulary, const std::string& left, const std::string& right,
               std::string_view where, int64_t number, std::vector<Merge>& merges);

}  // namespace weft

// Hugging Face's tokenizer.json for byte-level BPE models: added tokens, an NFC normalizer or none,
// a known split pattern, merges as "a b" or ["a", "b"]. Unknown fields that would change ids are
// rejected; others (padding, truncation, templates, decoders) are ignored. A character vocabulary
// is stored as a WordLevel model whose words are single characters.
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

// Ids are below this; it limits the memory that a hostile file can claim.
inline constexpr int64_t kMaxTokenId = int64_t{1} << 22;

// No tokenizer file is larger than this.
inline constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

// Reads and checks a tokenizer.json; `where` starts every error message.
BpeParts parse_tokenizer_json(std::string_view text, std::string_view where);
BpeParts parse_bpe_json(const nlohmann::json& root, std::string_view where);

// The tokenizer.json of a character vocabulary, in order, and the reverse; nullopt for a file with
// a model of another type.
nlohmann::json char_json(std::span<const char32_t> vocabulary);
std::optional<std::vector<char32_t>> parse_char_json(const nlohmann::json& root,
                                                     std::string_view where);

// The text of a tokenizer.json that Hugging Face can open.
std::string tokenizer_json_text(const BpeParts& parts);

// The vocabulary of a JSON file: ids by the strings in the file.
using TextVocabulary = std::unordered_map<std::string, int32_t>;

// Reads {"text": id, ...}; ids are distinct.
TextVocabulary parse_vocabulary(const nlohmann::json& json, std::string_view where);

// Its ids with the bytes that the strings represent; a string outside the byte alphabet represents
// itself.
std::vector<std::pair<int32_t, std::string>> vocabulary_bytes(const TextVocabulary& vocabulary);

// Appends the merge of two strings of a vocabulary; `number` counts merges from 1, for messages.
void add_merge(const TextVocabulary& vocabulary, const std::string& left, const std::string& right,
               std::string_view where, int64_t number, std::vector<Merge>& merges);

}  // namespace weft

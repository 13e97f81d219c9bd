// Reads and writes tokenizer.json.
#include "data/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "data/byte_alphabet.h"
#include "data/utf8.h"

namespace weft {

namespace {

using nlohmann::json;

// A member that may be missing or null.
const json* optional_member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool flag(const json& object, const char* key, bool otherwise, std::string_view where) {
  const json* value = optional_member(object, key);
  if (value == nullptr) return otherwise;
  INPUT_CHECK(value->is_boolean(), where, ": \"", key, "\" is ", json_type(*value),
              ", expected true or false");
  return value->get<bool>();
}

int32_t token_id(const json& value, std::string_view text, std::string_view where) {
  const bool fits = value.is_number_unsigned() && value.get<uint64_t>() < uint64_t{kMaxTokenId};
  INPUT_CHECK(fits, where, ": token ", in_quotes(text), " has id ",
              value.is_number() ? value.dump() : json_type(value), ", expected 0 to ",
              kMaxTokenId - 1);
  return value.get<int32_t>();
}

// Whether text is normalized to form C; any other normalizer is rejected.
bool parse_normalizer(const json& normalizer, std::string_view where) {
  const std::string type = json_string(normalizer, "type", where);
  if (type == "NFC") return true;
  INPUT_CHECK(type == "Sequence", where, ": normalizer ", in_quotes(type),
              " is unknown, expected NFC or none");
  bool nfc = false;
  const json& parts = json_member(normalizer, "normalizers", where);
  INPUT_CHECK(parts.is_array(), where, ": \"normalizers\" is ", json_type(parts),
              ", expected an array");
  for (const json& part : parts) {
    const std::string inner = json_string(part, "type", where);
    INPUT_CHECK(inner == "NFC", where, ": normalizer ", in_quotes(inner),
                " is unknown, expected NFC or none");
    nfc = true;
  }
  return nfc;
}

std::string parse_split(const json& split, std::string_view where) {
  const std::string behavior = json_string(split, "behavior", where);
  const bool plain = behavior == "Isolated" && !flag(split, "invert", false, where);
  INPUT_CHECK(plain, where, ": split has behavior ", in_quotes(behavior),
              " or is inverted, expected \"Isolated\" and not inverted");
  return json_string(json_member(split, "pattern", where), "Regex", where);
}

// Sets the split pattern and its related options.
void parse_pre_tokenizer(const json& pre_tokenizer, std::string_view where, BpeParts& parts) {
  std::vector<const json*> stages = {&pre_tokenizer};
  if (json_string(pre_tokenizer, "type", where) == "Sequence") {
    const json& inner = json_member(pre_tokenizer, "pretokenizers", where);
    INPUT_CHECK(inner.is_array(), where, ": \"pretokenizers\" is ", json_type(inner),
                ", expected an array");
    stages.clear();
    for (const json& stage : inner) stages.push_back(&stage);
  }
  std::vector<std::string> regexes;
  bool bytes = false;
  for (const json* stage : stages) {
    const std::string type = json_string(*stage, "type", where);
    INPUT_CHECK(!bytes && (type == "Split" || type == "ByteLevel"), where, ": pre-tokenizer ",
                in_quotes(type), " is unknown here, expected splits and then ByteLevel");
    if (type == "Split") {
      regexes.push_back(parse_split(*stage, where));
      continue;
    }
    bytes = true;
    parts.prefix_space = flag(*stage, "add_prefix_space", false, where);
    INPUT_CHECK(!parts.prefix_space || regexes.empty(), where,
                ": \"add_prefix_space\" is true after a split, which would put a space before "
                "every word; expected false");
    if (flag(*stage, "use_regex", true, where)) {
      regexes.push_back(split_regexes(SplitPattern::Gpt2).front());
    }
  }
  INPUT_CHECK(bytes, where, ": no ByteLevel pre-tokenizer, expected a byte-level model");
  INPUT_CHECK(!regexes.empty(), where, ": no split pattern, expected one");
  parts.pattern = find_split_pattern(regexes, where);
}

void check_model(const json& model, std::string_view where) {
  if (optional_member(model, "type") != nullptr) {
    const std::string type = json_string(model, "type", where);
    INPUT_CHECK(type == "BPE", where, ": model is ", in_quotes(type), ", expected \"BPE\"");
  }
  INPUT_CHECK(!flag(model, "byte_fallback", false, where), where,
              ": \"byte_fallback\" is true, expected a byte-level model");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json* value = optional_member(model, key);
    INPUT_CHECK(value == nullptr || *value == "", where, ": \"", key,
                "\" is set, expected none in a byte-level model");
  }
  const json* dropout = optional_member(model, "dropout");
  INPUT_CHECK(dropout == nullptr || *dropout == 0, where, ": \"dropout\" is ", dropout->dump(),
              ", which drops merges at random; expected none");
}

std::vector<Merge> parse_merges(const json& merges, const TextVocabulary& vocabulary,
                                std::string_view where) {
  INPUT_CHECK(merges.is_array(), where, ": \"merges\" is ", json_type(merges),
              ", expected an array");
  std::vector<Merge> parsed;
  int64_t number = 0;
  for (const json& merge : merges) {
    ++number;
    std::string left, right;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      INPUT_CHECK(space != std::string::npos, where, ": merge ", number, " is ", in_quotes(text),
                  ", expected two tokens with a space between");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      const bool pair =
          merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
      INPUT_CHECK(pair, where, ": merge ", number, " is ", json_type(merge),
                  ", expected a string or a pair of strings");
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    }
    add_merge(vocabulary, left, right, where, number, parsed);
  }
  return parsed;
}

std::vector<AddedToken> parse_added(const json& list, const TextVocabulary& vocabulary,
                                    std::string_view where) {
  INPUT_CHECK(list.is_array(), where, ": \"added_tokens\" is ", json_type(list),
              ", expected an array");
  std::unordered_map<int32_t, std::string_view> owners;
  for (const auto& [text, id] : vocabulary) owners.emplace(id, text);
  std::vector<AddedToken> added;
  std::set<int32_t> ids;
  for (const json& item : list) {
    AddedToken token;
    token.content = json_string(item, "content", where);
    INPUT_CHECK(!token.content.empty(), where, ": an added token is empty");
    token.id = token_id(json_member(item, "id", where), token.content, where);
    const auto own = vocabulary.find(token.content);
    INPUT_CHECK(own == vocabulary.end() || own->second == token.id, where, ": added token ",
                in_quotes(token.content), " has id ", token.id, ", in the vocabulary it has ",
                own->second);
    const auto owner = owners.find(token.id);
    const bool free = owner == owners.end() || owner->second == token.content;
    INPUT_CHECK(free && ids.insert(token.id).second, where, ": id ", token.id, " of added token ",
                in_quotes(token.content), " belongs to another token");
    token.special = flag(item, "special", false, where);
    token.normalized = flag(item, "normalized", !token.special, where);
    token.single_word = flag(item, "single_word", false, where);
    token.lstrip = flag(item, "lstrip", false, where);
    token.rstrip = flag(item, "rstrip", false, where);
    added.push_back(token);
  }
  return added;
}

json added_json(const AddedToken& token) {
  return {{"id", token.id},
          {"content", token.content},
          {"special", token.special},
          {"normalized", token.normalized},
          {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},
          {"single_word", token.single_word}};
}

json pre_tokenizer_json(const BpeParts& parts) {
  const bool plain = parts.pattern == SplitPattern::Gpt2;
  json bytes = {{"type", "ByteLevel"},
                {"add_prefix_space", parts.prefix_space},
                {"trim_offsets", true},
                {"use_regex", plain}};
  if (plain) return bytes;
  json stages = json::array();
  for (const std::string& regex : split_regexes(parts.pattern)) {
    stages.push_back({{"type", "Split"},
                      {"pattern", {{"Regex", regex}}},
                      {"behavior", "Isolated"},
                      {"invert", false}});
  }
  stages.push_back(bytes);
  return {{"type", "Sequence"}, {"pretokenizers", stages}};
}

// The strings of a vocabulary by id: bytes in the byte alphabet, added tokens unchanged.
std::vector<std::string> vocabulary_texts(const BpeParts& parts) {
  const TokenTable tokens(parts.tokens);
  std::vector<std::string> texts(static_cast<size_t>(tokens.size()));
  for (const auto& [id, bytes] : parts.tokens) {
    texts[static_cast<size_t>(id)] = to_byte_alphabet(bytes);
  }
  for (const AddedToken& token : parts.added) {
    if (token.id < tokens.size() && !tokens[token.id].empty()) {
      texts[static_cast<size_t>(token.id)] = token.content;
    }
  }
  return texts;
}

std::string json_quoted(std::string_view text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

TextVocabulary parse_vocabulary(const json& vocab, std::string_view where) {
  INPUT_CHECK(vocab.is_object() && !vocab.empty(), where, ": the vocabulary is ",
              vocab.is_object() ? "empty" : json_type(vocab), ", expected ids by token");
  TextVocabulary vocabulary;
  vocabulary.reserve(vocab.size());
  std::unordered_map<int32_t, std::string_view> owners;
  for (const auto& [text, value] : vocab.items()) {
    INPUT_CHECK(!text.empty(), where, ": a token of the vocabulary is empty");
    const int32_t id = token_id(value, text, where);
    const auto [owner, fresh] = owners.emplace(id, text);
    INPUT_CHECK(fresh, where, ": tokens ", in_quotes(owner->second), " and ", in_quotes(text),
                " both have id ", id);
    vocabulary.emplace(text, id);
  }
  return vocabulary;
}

std::vector<std::pair<int32_t, std::string>> vocabulary_bytes(const TextVocabulary& vocabulary) {
  std::vector<std::pair<int32_t, std::string>> tokens;
  tokens.reserve(vocabulary.size());
  for (const auto& [text, id] : vocabulary) {
    tokens.emplace_back(id, from_byte_alphabet(text).value_or(text));
  }
  return tokens;
}

void add_merge(const TextVocabulary& vocabulary, const std::string& left, const std::string& right,
               std::string_view where, int64_t number, std::vector<Merge>& merges) {
  const auto id = [&](const std::string& text) {
    const auto found = vocabulary.find(text);
    INPUT_CHECK(found != vocabulary.end(), where, ": merge ", number, " uses token ",
                in_quotes(text), ", which the vocabulary lacks");
    return found->second;
  };
  merges.push_back({id(left), id(right), id(left + right)});
}

BpeParts parse_tokenizer_json(std::string_view text, std::string_view where) {
  return parse_bpe_json(parse_json(text, where), where);
}

BpeParts parse_bpe_json(const json& root, std::string_view where) {
  const json& model = json_member(root, "model", where);
  INPUT_CHECK(model.is_object(), where, ": \"model\" is ", json_type(model),
              ", expected an object");
  check_model(model, where);
  BpeParts parts;
  parts.ignore_merges = flag(model, "ignore_merges", false, where);
  const json* normalizer = optional_member(root, "normalizer");
  parts.nfc = normalizer != nullptr && parse_normalizer(*normalizer, where);
  const json* pre_tokenizer = optional_member(root, "pre_tokenizer");
  INPUT_CHECK(pre_tokenizer != nullptr, where,
              ": no ByteLevel pre-tokenizer, expected a byte-level model");
  parse_pre_tokenizer(*pre_tokenizer, where, parts);
  const TextVocabulary vocabulary = parse_vocabulary(json_member(model, "vocab", where), where);
  parts.tokens = vocabulary_bytes(vocabulary);
  parts.merges = parse_merges(json_member(model, "merges", where), vocabulary, where);
  const json* added = optional_member(root, "added_tokens");
  if (added != nullptr) parts.added = parse_added(*added, vocabulary, where);
  return parts;
}

json char_json(std::span<const char32_t> vocabulary) {
  json ids = json::object();
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    std::string character;
    append_utf8(character, vocabulary[i]);
    ids[character] = i;
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Split"},
            {"pattern", {{"Regex", "[\\s\\S]"}}},
            {"behavior", "Isolated"},
            {"invert", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Fuse"}}},
          // The tokenizer has no unknown characters: one without an id is an error.
          {"model", {{"type", "WordLevel"}, {"vocab", ids}, {"unk_token", "<unk>"}}}};
}

std::optional<std::vector<char32_t>> parse_char_json(const json& root, std::string_view where) {
  const json& model = json_member(root, "model", where);
  if (!model.is_object() || optional_member(model, "type") == nullptr) return std::nullopt;
  if (model["type"] != "WordLevel") return std::nullopt;
  const TextVocabulary ids = parse_vocabulary(json_member(model, "vocab", where), where);
  std::vector<char32_t> vocabulary;
  for (const auto& [text, id] : ids) {
    size_t end = 0;
    const std::optional<char32_t> character = next_code_point(text, end);
    INPUT_CHECK(character && end == text.size(), where, ": token ", in_quotes(text),
                " of a \"WordLevel\" model is more than one character, expected one");
    vocabulary.push_back(*character);
  }
  std::sort(vocabulary.begin(), vocabulary.end());
  INPUT_CHECK(char_json(vocabulary) == root, where,
              ": model \"WordLevel\" has ids or parts that a character tokenizer does not have, "
              "expected one as Weft writes it");
  return vocabulary;
}

std::string tokenizer_json_text(const BpeParts& parts) {
  const std::vector<std::string> texts = vocabulary_texts(parts);
  json added = json::array();
  for (const AddedToken& token : parts.added) added.push_back(added_json(token));
  const json normalizer = parts.nfc ? json{{"type", "NFC"}} : json();
  const json decoder = {{"type", "ByteLevel"},
                        {"add_prefix_space", true},
                        {"trim_offsets", true},
                        {"use_regex", true}};
  std::string text = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  text += "  \"added_tokens\": " + added.dump() + ",\n";
  text += "  \"normalizer\": " + normalizer.dump() + ",\n";
  text += "  \"pre_tokenizer\": " + pre_tokenizer_json(parts).dump() + ",\n";
  text += "  \"post_processor\": null,\n  \"decoder\": " + decoder.dump() + ",\n";
  text +=
      "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n";
  text += "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n";
  text += "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": ";
  text += parts.ignore_merges ? "true" : "false";
  text += ",\n    \"vocab\": {";
  const char* separator = "\n      ";
  for (size_t id = 0; id < texts.size(); ++id) {
    if (texts[id].empty()) continue;
    text += cat(separator, json_quoted(texts[id]), ": ", id);
    separator = ",\n      ";
  }
  text += "\n    },\n    \"merges\": [";
  separator = "\n      ";
  for (const Merge& merge : parts.merges) {
    text += separator + json_quoted(texts[static_cast<size_t>(merge.left)] + " " +
                                    texts[static_cast<size_t>(merge.right)]);
    separator = ",\n      ";
  }
  text += "\n    ]\n  }\n}\n";
  return text;
}

}  // namespace weft

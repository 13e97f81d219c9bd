// Finds the files of a tokenizer and reads the formats other than tokenizer.json.
#include "data/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer_json.h"

namespace weft {

namespace {

namespace fs = std::filesystem;

// Every split of a token is looked up, so its length is limited; real ones have at most 128 bytes.
constexpr size_t kMaxTiktokenBytes = 256;
constexpr size_t kMaxUnmade = 1024;  // special tokens of a vocabulary; real ones have a few dozen

std::optional<std::string> from_base64(std::string_view text) {
  const auto digit = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int value = i >= text.size() - padding ? 0 : digit(text[i]);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift & 0xff);
    bits = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

// Calls visit(line, number) for every line that is not empty, without its line end.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    if (!line.empty()) visit(line, number);
  }
}

// "text=id" on the command line.
AddedToken parse_special(const std::string& text) {
  const size_t equals = text.rfind('=');
  const auto id = equals == std::string::npos
                      ? std::nullopt
                      : parse_int(std::string_view(text).substr(equals + 1));
  USER_CHECK(id && equals > 0 && *id >= 0 && *id < kMaxTokenId, "special token ", in_quotes(text),
             " is not of the form text=id with an id below ", kMaxTokenId);
  return {.id = static_cast<int32_t>(*id), .content = text.substr(0, equals)};
}

LoadedBpe from_parts(BpeParts parts) {
  auto tokenizer = std::make_shared<const BpeTokenizer>(std::move(parts));
  std::string json = tokenizer_json_text(tokenizer->parts());
  return {std::move(tokenizer), std::move(json)};
}

LoadedBpe load_pair(const std::string& encoder, const std::string& merges,
                    const LoadBpeOptions& options) {
  BpeParts parts = parse_gpt2_files(read_text_file(encoder, kMaxTokenizerBytes), encoder,
                                    read_text_file(merges, kMaxTokenizerBytes), merges);
  if (!options.pattern.empty()) parts.pattern = split_pattern(options.pattern);
  return from_parts(std::move(parts));
}

LoadedBpe load_tiktoken(const std::string& path, const LoadBpeOptions& options) {
  USER_CHECK(
      !options.pattern.empty(), path,
      ": a .tiktoken file does not say how text is split; give a split pattern, such as llama3");
  TiktokenOptions tiktoken{.pattern = split_pattern(options.pattern), .special = {}};
  for (const std::string& text : options.special) tiktoken.special.push_back(parse_special(text));
  return from_parts(parse_tiktoken(read_text_file(path, kMaxTokenizerBytes), path, tiktoken));
}

// Whether a token is the concatenation of two others, as all merged tokens are.
bool is_made_of_two(const std::string& text, const TextVocabulary& vocabulary) {
  constexpr size_t kLongest = 1024;  // every split is looked up
  if (text.size() > kLongest) return false;
  for (size_t split = 1; split < text.size(); ++split) {
    if (vocabulary.contains(text.substr(0, split)) && vocabulary.contains(text.substr(split))) {
      return true;
    }
  }
  return false;
}

// The tokens that no merge produces: special ones, unless merges are missing.
std::vector<AddedToken> unmade_tokens(const TextVocabulary& vocabulary, const BpeParts& parts,
                                      std::string_view merges_where) {
  std::unordered_set<int32_t> ordinary;
  for (const Merge& merge : parts.merges) ordinary.insert(merge.result);
  for (const auto& [id, bytes] : parts.tokens) {
    if (bytes.size() == 1) ordinary.insert(id);
  }
  std::vector<AddedToken> added;
  for (const auto& [text, id] : vocabulary) {
    if (!ordinary.contains(id)) added.push_back({.id = id, .content = text});
  }
  INPUT_CHECK(added.size() <= kMaxUnmade, merges_where, ": no merge makes ", added.size(),
              " tokens, expected at most ", kMaxUnmade, " special ones; is the file complete?");
  std::sort(added.begin(), added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (const AddedToken& token : added) {
    INPUT_CHECK(!is_made_of_two(token.content, vocabulary), merges_where, ": no merge makes token ",
                in_quotes(token.content), ", which is not a special token; is the file complete?");
  }
  return added;
}

// Adds special tokens and gives them ids in the vocabulary.
void add_special(const std::vector<AddedToken>& special, BpeParts& parts) {
  std::unordered_set<int32_t> ids;
  for (const auto& [id, bytes] : parts.tokens) ids.insert(id);
  std::vector<std::string> texts;
  for (const AddedToken& token : special) texts.push_back(token.content);
  check_special_texts(texts, parts.tokens);
  for (const AddedToken& token : special) {
    USER_CHECK(ids.insert(token.id).second, "special token ", in_quotes(token.content), " has id ",
               token.id, ", which belongs to another token");
    // A word that is itself a token is also found in plain text.
    USER_CHECK(next_word(parts.pattern, token.content, 0) < token.content.size(), "special token ",
               in_quotes(token.content), " is a word that text may hold; put brackets around it");
    parts.tokens.emplace_back(token.id, from_byte_alphabet(token.content).value_or(token.content));
    parts.added.push_back(token);
  }
}

// The file in a folder that defines its tokenizer.
std::string find_in_folder(const std::string& folder) {
  for (const char* name : {"tokenizer.json", "encoder.json", "vocab.json"}) {
    std::string path = (fs::path(folder) / name).string();
    if (path_exists(path)) return path;
  }
  throw UserError(ExitCode::InputFile,
                  cat(folder, ": the folder holds no tokenizer.json, encoder.json or vocab.json"));
}

}  // namespace

BpeParts parse_gpt2_files(std::string_view encoder, std::string_view encoder_where,
                          std::string_view merges, std::string_view merges_where) {
  const TextVocabulary vocabulary =
      parse_vocabulary(parse_json(encoder, encoder_where), encoder_where);
  BpeParts parts;
  parts.tokens = vocabulary_bytes(vocabulary);
  for_each_line(merges, [&](std::string_view line, int64_t number) {
    if (number == 1 && line.starts_with('#')) return;
    const size_t space = line.find(' ');
    INPUT_CHECK(space != std::string_view::npos, merges_where, ":", number, ": line is ",
                in_quotes(line), ", expected two tokens with a space between");
    add_merge(vocabulary, std::string(line.substr(0, space)), std::string(line.substr(space + 1)),
              merges_where, static_cast<int64_t>(parts.merges.size()) + 1, parts.merges);
  });
  parts.added = unmade_tokens(vocabulary, parts, merges_where);
  return parts;
}

BpeParts parse_tiktoken(std::string_view text, std::string_view where,
                        const TiktokenOptions& options) {
  BpeParts parts{.tokens = {},
                 .merges = {},
                 .added = {},
                 .pattern = options.pattern,
                 .nfc = false,
                 .ignore_merges = true};
  TextVocabulary ranks;
  std::unordered_set<int32_t> ids;
  for_each_line(text, [&](std::string_view line, int64_t number) {
    const size_t space = line.find(' ');
    const auto bytes = from_base64(line.substr(0, space));
    const auto rank =
        space == std::string_view::npos ? std::nullopt : parse_int(line.substr(space + 1));
    INPUT_CHECK(bytes && !bytes->empty() && rank, where, ":", number, ": line is ", in_quotes(line),
                ", expected a base64 token and its rank");
    INPUT_CHECK(bytes->size() <= kMaxTiktokenBytes, where, ":", number, ": token has ",
                bytes->size(), " bytes, expected at most ", kMaxTiktokenBytes);
    INPUT_CHECK(*rank >= 0 && *rank < kMaxTokenId, where, ":", number, ": rank is ", *rank,
                ", expected 0 to ", kMaxTokenId - 1);
    const auto id = static_cast<int32_t>(*rank);
    INPUT_CHECK(ids.insert(id).second && ranks.emplace(*bytes, id).second, where, ":", number,
                ": token or rank ", id, " appears twice");
    parts.tokens.emplace_back(id, *bytes);
  });
  INPUT_CHECK(!parts.tokens.empty(), where, ": the file holds no tokens");
  std::sort(parts.tokens.begin(), parts.tokens.end());
  for (const auto& [id, bytes] : parts.tokens) {
    const size_t first = parts.merges.size();
    for (size_t split = 1; split < bytes.size(); ++split) {
      const auto left = ranks.find(bytes.substr(0, split));
      const auto right = ranks.find(bytes.substr(split));
      if (left == ranks.end() || right == ranks.end()) continue;
      parts.merges.push_back({left->second, right->second, id});
    }
    std::sort(parts.merges.begin() + static_cast<int64_t>(first), parts.merges.end(),
              [](const Merge& a, const Merge& b) {
                return a.left != b.left ? a.left < b.left : a.right < b.right;
              });
  }
  add_special(options.special, parts);
  return parts;
}

LoadedBpe bpe_from_json(std::string text, std::string_view where) {
  auto tokenizer = std::make_shared<const BpeTokenizer>(parse_tokenizer_json(text, where));
  return {std::move(tokenizer), std::move(text)};
}

LoadedBpe load_bpe(const std::string& path, const LoadBpeOptions& options) {
  std::error_code ignored;
  const std::string file = fs::is_directory(path, ignored) ? find_in_folder(path) : path;
  if (file.ends_with(".tiktoken")) return load_tiktoken(file, options);
  USER_CHECK(options.special.empty(), file,
             ": a special token is given, which only .tiktoken files need; leave it out");
  const fs::path folder = fs::path(file).parent_path();
  const std::string name = fs::path(file).filename().string();
  if (name == "encoder.json") return load_pair(file, (folder / "vocab.bpe").string(), options);
  if (name == "vocab.json") return load_pair(file, (folder / "merges.txt").string(), options);
  USER_CHECK(options.pattern.empty(), file,
             ": a split pattern is given, which the file itself names; leave it out");
  return bpe_from_json(read_text_file(file, kMaxTokenizerBytes), file);
}

}  // namespace weft

// The magic number alone tells the layouts apart; a JSON file next to it means there is no header.
#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace weft {

namespace {

constexpr int64_t kHeaderBytes = 1024;
constexpr int64_t kMaxInfoBytes = int64_t{64} << 20;
constexpr const char* kInfoFormat = "weft-tokens";
constexpr size_t kChunk = size_t{1} << 14;  // tokens read at a time

struct HeaderKind {
  int32_t magic;
  int32_t version;
  int64_t bytes_per_token;
};
constexpr HeaderKind kHeaderKinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

int32_t header_field(std::span<const std::byte> head, int64_t index) {
  int32_t value = 0;  // 0 if the file ends before it
  const auto end = static_cast<size_t>((index + 1) * 4);
  if (end <= head.size()) std::memcpy(&value, head.data() + end - 4, sizeof value);
  return value;
}

TokenLayout with_header(std::span<const std::byte> head, int64_t size, const HeaderKind& kind,
                        std::string_view where) {
  INPUT_CHECK(size >= kHeaderBytes, where, ": file has ", size,
              " bytes, too short for its header of ", kHeaderBytes);
  const int32_t version = header_field(head, 1);
  INPUT_CHECK(version == kind.version, where, ": header ", kind.magic, " has version ", version,
              ", expected ", kind.version);
  const int64_t tokens = header_field(head, 2);
  INPUT_CHECK(tokens >= 0 && size == kHeaderBytes + tokens * kind.bytes_per_token, where,
              ": header claims ", tokens, " tokens of ", kind.bytes_per_token,
              " bytes, the file holds ", size - kHeaderBytes, " bytes of them");
  return {.begin = kHeaderBytes, .bytes_per_token = kind.bytes_per_token, .tokens = tokens};
}

// The unsigned id stored in the file.
int64_t full_id(int32_t id) {
  return static_cast<uint32_t>(id);
}

// Parses a hash of sixteen digits, as hex64 writes it.
uint64_t parse_hash(const std::string& text, std::string_view where) {
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  INPUT_CHECK(error == std::errc() && hex64(hash) == text, where, ": tokenizer hash is ",
              in_quotes(text), ", expected 16 hexadecimal digits");
  return hash;
}

TokenizerRef parse_tokenizer_ref(const nlohmann::json& json, int64_t vocab_size,
                                 std::string_view where) {
  if (json_string(json, "kind", where) != name_of(TokenizerKind::Bpe)) {
    TokenizerRef ref = refer_to(Tokenizer::from_json(json, where));
    INPUT_CHECK(vocab_size == ref.vocab_size, where, ": \"vocab_size\" is ", vocab_size,
                ", its tokenizer has ", ref.vocab_size);
    return ref;
  }
  const std::string file = json_string(json, "file", where);
  INPUT_CHECK(!file.empty() && file.find('/') == std::string::npos, where, ": tokenizer file is ",
              in_quotes(file), ", expected a name in the same folder");
  return {.kind = TokenizerKind::Bpe,
          .hash = parse_hash(json_string(json, "hash", where), where),
          .vocab_size = vocab_size,
          .embedded = {},
          .file = file};
}

}  // namespace

TokenLayout parse_token_layout(std::span<const std::byte> head, int64_t size,
                               std::string_view where) {
  for (const HeaderKind& kind : kHeaderKinds) {
    if (header_field(head, 0) == kind.magic) return with_header(head, size, kind, where);
  }
  return plain_token_layout(size, 2, where);
}

TokenLayout plain_token_layout(int64_t size, int64_t bytes_per_token, std::string_view where) {
  INPUT_CHECK(size % bytes_per_token == 0, where, ": file has ", size,
              bytes_per_token == 2 ? " bytes, expected an even number for 16-bit tokens"
                                   : " bytes, expected a multiple of 4 for 32-bit tokens");
  return {.begin = 0, .bytes_per_token = bytes_per_token, .tokens = size / bytes_per_token};
}

TokenizerRef refer_to(const Tokenizer& tokenizer) {
  TokenizerRef ref{
      .kind = tokenizer.kind(), .hash = tokenizer.hash(), .vocab_size = tokenizer.vocab_size()};
  if (tokenizer.kind() == TokenizerKind::Bpe) {
    ref.file = Tokenizer::kFileName;
  } else {
    ref.embedded = tokenizer;
  }
  return ref;
}

TokenFileInfo parse_token_info(std::string_view text, std::string_view where) {
  const nlohmann::json root = parse_json(text, where);
  const std::string format = json_string(root, "format", where);
  INPUT_CHECK(format == kInfoFormat, where, ": \"format\" is ", in_quotes(format), ", expected \"",
              kInfoFormat, "\"");
  const std::string dtype = json_string(root, "dtype", where);
  INPUT_CHECK(dtype == "uint16" || dtype == "uint32", where, ": \"dtype\" is ", in_quotes(dtype),
              ", expected \"uint16\" or \"uint32\"");
  TokenFileInfo info;
  info.bytes_per_token = dtype == "uint16" ? 2 : 4;
  info.tokens = json_int(root, "tokens", where);
  const int64_t vocab_size = json_int(root, "vocab_size", where);
  const int64_t most = dtype == "uint16" ? 65536 : INT32_MAX;
  INPUT_CHECK(vocab_size >= 1 && vocab_size <= most, where, ": \"vocab_size\" is ", vocab_size,
              ", expected 1 to ", most, " for ", 8 * info.bytes_per_token, "-bit tokens");
  info.tokenizer = parse_tokenizer_ref(json_member(root, "tokenizer", where), vocab_size, where);
  if (root.contains("end_token")) {
    info.end_token = json_int(root, "end_token", where);
    INPUT_CHECK(*info.end_token >= 0 && *info.end_token < vocab_size, where, ": \"end_token\" is ",
                *info.end_token, ", expected an id below ", vocab_size);
  }
  if (root.contains("source")) {
    const nlohmann::json& source = root["source"];
    INPUT_CHECK(source.is_array(), where, ": \"source\" is ", json_type(source),
                ", expected an array of strings");
    for (const nlohmann::json& item : source) {
      INPUT_CHECK(item.is_string(), where, ": \"source\" holds ", json_type(item),
                  ", expected an array of strings");
      info.source.push_back(item.get<std::string>());
    }
  }
  return info;
}

std::string token_info_text(const TokenFileInfo& info) {
  const TokenizerRef& tokenizer = info.tokenizer;
  nlohmann::ordered_json root = {{"format", kInfoFormat},
                                 {"dtype", info.bytes_per_token == 2 ? "uint16" : "uint32"},
                                 {"tokens", info.tokens},
                                 {"vocab_size", tokenizer.vocab_size}};
  if (tokenizer.embedded) {
    root["tokenizer"] = tokenizer.embedded->to_json();
  } else {
    root["tokenizer"] = {{"kind", name_of(tokenizer.kind)},
                         {"hash", hex64(tokenizer.hash)},
                         {"file", tokenizer.file}};
  }
  if (info.end_token) root["end_token"] = *info.end_token;
  root["source"] = info.source;
  // Paths need not be UTF-8; invalid bytes are replaced.
  return root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

TokenFile TokenFile::open(const std::string& path) {
  InputFile file = InputFile::open(path);
  INPUT_CHECK(file.size() > 0, path, ": file is empty");
  const std::string info_path = path + ".json";
  std::optional<TokenFileInfo> info;
  if (path_exists(info_path)) {
    info = parse_token_info(read_text_file(info_path, kMaxInfoBytes), info_path);
  }
  std::vector<std::byte> head(static_cast<size_t>(std::min(file.size(), kTokenHeadBytes)));
  file.read(0, head);
  const TokenLayout layout = info ? plain_token_layout(file.size(), info->bytes_per_token, path)
                                  : parse_token_layout(head, file.size(), path);
  INPUT_CHECK(!info || info->tokens == layout.tokens, info_path, ": \"tokens\" is ",
              info ? info->tokens : 0, ", the token file holds ", layout.tokens,
              "; prepare the data again");
  return TokenFile(std::move(file), layout, std::move(info));
}

TokenFile::TokenFile(InputFile file, TokenLayout layout, std::optional<TokenFileInfo> info)
    : file_(std::move(file)), layout_(layout), info_(std::move(info)) {}

int64_t TokenFile::at(int64_t i) const {
  int32_t id = 0;
  read(i, std::span(&id, 1));
  return full_id(id);
}

void TokenFile::read(int64_t first, std::span<int32_t> ids) const {
  CHECK(first >= 0 && first + std::ssize(ids) <= size(), "token ", first, " of ", size());
  const int64_t begin = layout_.begin + first * layout_.bytes_per_token;
  if (layout_.bytes_per_token == 4) return file_.read(begin, std::as_writable_bytes(ids));
  std::array<uint16_t, kChunk> narrow;
  for (size_t done = 0; done < ids.size(); done += kChunk) {
    const auto some = std::span(narrow).first(std::min(kChunk, ids.size() - done));
    file_.read(begin + static_cast<int64_t>(done) * 2, std::as_writable_bytes(some));
    std::copy(some.begin(), some.end(), ids.begin() + static_cast<int64_t>(done));
  }
}

void TokenFile::visit(const std::function<void(int64_t, std::span<const int32_t>)>& visit) const {
  std::vector<int32_t> ids(kChunk);
  for (int64_t first = 0; first < size(); first += int64_t{kChunk}) {
    ids.resize(static_cast<size_t>(std::min(int64_t{kChunk}, size() - first)));
    read(first, ids);
    visit(first, ids);
  }
}

Tokenizer TokenFile::tokenizer() const {
  CHECK(info_, path(), " has no tokenizer");
  if (info_->tokenizer.embedded) return *info_->tokenizer.embedded;
  const std::string file =
      (std::filesystem::path(path()).parent_path() / info_->tokenizer.file).string();
  Tokenizer tokenizer = Tokenizer::bpe(load_bpe(file));
  INPUT_CHECK(tokenizer.hash() == info_->tokenizer.hash, file, ": tokenizer is ",
              tokenizer.identity(), ", expected that of ", path(), ": ",
              info_->tokenizer.identity(), "; put the right file back or prepare the data again");
  return tokenizer;
}

std::optional<int64_t> TokenFile::vocab_size() const {
  if (!info_) return std::nullopt;
  return info_->tokenizer.vocab_size;
}

TokenAt TokenFile::max_token() const {
  TokenAt best{.position = 0, .token = -1};
  visit([&](int64_t first, std::span<const int32_t> ids) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (full_id(ids[i]) <= best.token) continue;
      best = {first + static_cast<int64_t>(i), full_id(ids[i])};
    }
  });
  return best;
}

void TokenFile::check_vocabulary(int64_t model_vocab_size) const {
  if (layout_.bytes_per_token == 2 && model_vocab_size >= 65536) return;
  visit([&](int64_t first, std::span<const int32_t> ids) {
    check_ids(first, ids, model_vocab_size, "raise model.vocab_size or use other data");
  });
}

void TokenFile::check_ids(int64_t first, std::span<const int32_t> ids, int64_t model_vocab_size,
                          std::string_view advice) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    INPUT_CHECK(full_id(ids[i]) < model_vocab_size, path(), ": token ",
                first + static_cast<int64_t>(i), " has id ", full_id(ids[i]),
                ", the model's vocabulary has ", model_vocab_size, "; ", advice);
  }
}

}  // namespace weft

// Token files, read at offsets. Three layouts are supported: nanoGPT's headerless uint16, and
// llm.c's 1024-byte header with uint16 (magic 20240520) or uint32 (20240801) tokens. `weft data
// prepare` writes the first, or uint32 if the vocabulary needs it, plus a file with the suffix
// ".json" that describes the ids. All integers are little-endian.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/tokenizer.h"

namespace weft {

// Where the tokens are in a file.
struct TokenLayout {
  int64_t begin = 0;            // bytes before the first token
  int64_t bytes_per_token = 2;  // 2 or 4
  int64_t tokens = 0;
};

// The tokenizer that made a token file: in the JSON itself, or a file in the same folder.
struct TokenizerRef {
  TokenizerKind kind = TokenizerKind::Byte;
  uint64_t hash = 0;
  int64_t vocab_size = 0;
  std::optional<Tokenizer> embedded = {};
  std::string file = {};  // file name in the token file's folder, if `embedded` is unset

  std::string identity() const { return tokenizer_identity(kind, vocab_size, hash); }
};

// Refers to a tokenizer by value or, for merges, by the name of its file.
TokenizerRef refer_to(const Tokenizer& tokenizer);

// The contents of the JSON file next to a token file.
struct TokenFileInfo {
  int64_t tokens = 0;
  int64_t bytes_per_token = 2;
  TokenizerRef tokenizer;
  std::optional<int64_t> end_token = {};  // between documents
  std::vector<std::string> source = {};   // the inputs as the user named them
};

// The bytes at the start of a token file that determine its layout.
inline constexpr int64_t kTokenHeadBytes = 12;

// Finds the tokens in a file of `size` bytes that starts with `head`: after a header or, without
// one, as 16-bit tokens. `where` starts every error message.
TokenLayout parse_token_layout(std::span<const std::byte> head, int64_t size,
                               std::string_view where);

// The same for a file without a header.
TokenLayout plain_token_layout(int64_t size, int64_t bytes_per_token, std::string_view where);

// Reads and checks the JSON file next to a token file.
TokenFileInfo parse_token_info(std::string_view text, std::string_view where);

// The text of that JSON file.
std::string token_info_text(const TokenFileInfo& info);

// A token and where it was found.
struct TokenAt {
  int64_t position = 0;
  int64_t token = 0;
};

class TokenFile {
 public:
  // Opens a token file, and reads `path`.json if it exists.
  static TokenFile open(const std::string& path);

  int64_t size() const { return layout_.tokens; }
  const std::string& path() const { return file_.path(); }
  const TokenLayout& layout() const { return layout_; }

  // The contents of the JSON file next to it, if any.
  const std::optional<TokenFileInfo>& info() const { return info_; }

  // Token `i`, below size().
  int64_t at(int64_t i) const;

  // Tokens from `first` on, all below size(); an id of 2^31 or more is negative here.
  void read(int64_t first, std::span<int32_t> ids) const;

  // Calls visit(position of the first, ids) for all tokens in order, in chunks.
  void visit(const std::function<void(int64_t, std::span<const int32_t>)>& visit) const;

  // The tokenizer that made it; requires info().
  Tokenizer tokenizer() const;

  // The vocabulary size of its tokenizer, if known.
  std::optional<int64_t> vocab_size() const;

  // The largest id and its first position; reads the complete file.
  TokenAt max_token() const;

  // Throws a UserError naming the first id outside a vocabulary of this size. Reads the complete
  // file unless its token type cannot hold such an id.
  void check_vocabulary(int64_t model_vocab_size) const;

  // The same for ids already read, starting at `first`; `advice` ends the message.
  void check_ids(int64_t first, std::span<const int32_t> ids, int64_t model_vocab_size,
                 std::string_view advice) const;

 private:
  TokenFile(InputFile file, TokenLayout layout, std::optional<TokenFileInfo> info);

  InputFile file_;
  TokenLayout layout_;
  std::optional<TokenFileInfo> info_;
};

}  // namespace weft

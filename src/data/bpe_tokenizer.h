// A byte-level byte-pair tokenizer. Added tokens are found first; the text between them is
// normalized, split into words (pretokenize.h), and each word is merged (bpe.h). The tokenizer is
// immutable and shared; each thread has its own encoder.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/bpe.h"
#include "data/pretokenize.h"

namespace weft {

// A token that is matched in the text before anything else.
struct AddedToken {
  int32_t id = 0;
  std::string content = {};
  bool special = true;
  bool normalized = false;   // itself normalized, and matched in the normalized text
  bool single_word = false;  // only where no word character is next to it
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it

  bool operator==(const AddedToken&) const = default;
};

// The contents of a tokenizer's files.
struct BpeParts {
  std::vector<std::pair<int32_t, std::string>> tokens;  // ids and bytes
  std::vector<Merge> merges;                            // in order of priority
  std::vector<AddedToken> added;
  SplitPattern pattern = SplitPattern::Gpt2;
  bool nfc = false;            // text is normalized to form C
  bool ignore_merges = false;  // a word that is itself a token is not split
  bool prefix_space = false;   // adds a space if text starts without one, also after added tokens
};

// Throws UserError(Config) unless these strings can be special tokens for a vocabulary: UTF-8, not
// empty, distinct, and not already in it.
void check_special_texts(const std::vector<std::string>& texts,
                         const std::vector<std::pair<int32_t, std::string>>& tokens);

class BpeTokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts);

  const BpeParts& parts() const { return parts_; }
  int64_t vocab_size() const { return vocab_size_; }
  uint64_t hash() const { return hash_; }

  // The bytes of a token, or the text of an added one; empty for an unknown id.
  std::string_view decode(int32_t id) const;

  // The id of an added token.
  std::optional<int32_t> find_added(std::string_view content) const;

  // The added tokens that begin and end a document, recognized by name.
  std::optional<int32_t> begin_token() const;
  std::optional<int32_t> end_token() const;

  // The id of the token of one byte; -1 when there is none.
  int32_t byte_id(unsigned char byte) const { return byte_ids_[byte]; }
  bool has_all_bytes() const { return has_all_bytes_; }

  // The id of a complete word when ignore_merges allows it, else -1.
  int32_t full_word(std::string_view word) const {
    return index_ ? index_->find(tokens_, word) : -1;
  }

  const MergeTable& merge_table() const { return merge_table_; }

  // Where to split a text so that its parts, encoded separately, give the ids of the complete text:
  // the last such position up to `want`, else the first one after it; the size when there is none.
  size_t split(std::string_view text, size_t want) const;

 private:
  std::optional<int32_t> find_first(std::span<const std::string_view> names) const;
  bool touches_added(std::string_view text, size_t at) const;

  BpeParts parts_;
  TokenTable tokens_;
  std::optional<TokenIndex> index_;
  MergeTable merge_table_;
  std::array<int32_t, 256> byte_ids_{};
  bool has_all_bytes_ = true;
  std::unordered_map<int32_t, size_t> added_by_id_;
  int64_t vocab_size_ = 0;
  uint64_t hash_ = 0;
};

// Whether special tokens in a text are encoded as tokens or as plain text.
enum class Specials { AsText, AsTokens };

// The origin of a text, for messages: byte `offset` of `where`.
struct TextOrigin {
  std::string_view where;
  int64_t offset = 0;
};

// Whether a text starts a document, or continues one that was split.
enum class TextStart { OfDocument, InDocument };

// Throws a UserError naming the byte unless the text is valid UTF-8.
void check_utf8(std::string_view text, const TextOrigin& origin);

// A longer word is rejected: it is not text, and merging it would need too much memory.
inline constexpr size_t kMaxWordBytes = size_t{16} << 20;

// The UserError for such a word.
[[noreturn]] void throw_long_word(const TextOrigin& origin);

// Calls visit(word) for the words of a text, which is valid UTF-8, in order.
template <class Visit>
void for_each_word(SplitPattern pattern, std::string_view text, const TextOrigin& origin,
                   const Visit& visit) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = next_word(pattern, text, at);
    if (end - at > kMaxWordBytes) {
      throw_long_word({origin.where, origin.offset + static_cast<int64_t>(at)});
    }
    visit(text.substr(at, end - at));
    at = end;
  }
}

// Finds added tokens in texts, leftmost first, then longest first.
class AddedMatcher {
 public:
  explicit AddedMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Calls text(part) and token(id) for the parts of the text, in order.
  template <class OnText, class OnToken>
  void split(std::string_view text, OnText on_text, OnToken on_token) const;

 private:
  const AddedToken* match(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;  // longest first
  std::array<bool, 256> first_{};   // bytes that a token starts with
};

// Encodes texts with a tokenizer that outlives it. Caches words: use one per thread.
class BpeEncoder {
 public:
  BpeEncoder(const BpeTokenizer& tokenizer, Specials specials);

  // Appends the ids of a text; a UserError names the first byte that cannot be encoded.
  void encode(std::string_view text, const TextOrigin& origin, std::vector<int32_t>& ids,
              TextStart start = TextStart::OfDocument);

 private:
  static constexpr size_t kKeyBytes = 32;
  static constexpr size_t kCachedIds = 7;

  // A word of up to 31 bytes, with its length in the last byte, and its ids.
  struct alignas(64) CacheEntry {
    std::array<uint64_t, kKeyBytes / 8> key{};
    std::array<int32_t, kCachedIds> ids{};
    int32_t count = 0;
  };

  void check_bytes(std::string_view text, const TextOrigin& origin) const;
  void encode_section(std::string_view text, const TextOrigin& origin, std::vector<int32_t>& ids,
                      TextStart start);
  void encode_words(std::string_view text, const TextOrigin& origin, std::vector<int32_t>& ids);
  void encode_word(std::string_view word, std::vector<int32_t>& ids);
  void merge_word(std::string_view word);

  const BpeTokenizer& tokenizer_;
  AddedMatcher raw_;
  AddedMatcher normalized_;
  WordMerger merger_;
  std::vector<CacheEntry> cache_;
  std::vector<int32_t> word_ids_;
};

}  // namespace weft

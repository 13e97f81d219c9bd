// The tokenizer's tables, and the encoder's loop over sections, words and merges.
#include "data/bpe_tokenizer.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "base/hash.h"
#include "data/byte_alphabet.h"
#include "data/normalize.h"
#include "data/unicode.h"
#include "data/utf8.h"

namespace weft {

namespace {

constexpr size_t kCacheEntries = size_t{1} << 16;

// Names of the tokens that begin and end a document in known tokenizers; GPT-2 uses one for both.
constexpr std::string_view kDeepSeekBegin =
    "<\xef\xbd\x9c"
    "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";
constexpr std::string_view kBeginNames[] = {"<|begin_of_text|>", kDeepSeekBegin, "<s>", "<bos>",
                                            "<|endoftext|>"};
constexpr std::string_view kDeepSeekEnd =
    "<\xef\xbd\x9c"
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";
constexpr std::string_view kEndNames[] = {"<|endoftext|>", "<|end_of_text|>", kDeepSeekEnd,
                                          "</s>",          "<|im_end|>",      "<eos>"};

// Whether it matters which added tokens are normalized. Without normalization, and when all tokens
// have the same flag, the same tokens are found either way.
bool tells_normalized(const BpeParts& parts) {
  const auto normalized = [](const AddedToken& token) { return token.normalized; };
  const auto count = std::count_if(parts.added.begin(), parts.added.end(), normalized);
  return parts.nfc || (count > 0 && count < std::ssize(parts.added));
}

uint64_t hash_of(const BpeParts& parts) {
  const bool normalized_counts = tells_normalized(parts);
  Hasher hasher;
  hasher.add_field(name_of(parts.pattern));
  hasher.add(uint64_t{parts.prefix_space} << 2 | uint64_t{parts.nfc} << 1 |
             uint64_t{parts.ignore_merges});
  hasher.add(uint64_t{parts.tokens.size()});
  for (const auto& [id, bytes] : parts.tokens) {
    hasher.add(static_cast<uint64_t>(id));
    hasher.add_field(bytes);
  }
  for (const Merge& merge : parts.merges) {
    hasher.add(pair_key(merge.left, merge.right));
  }
  for (const AddedToken& token : parts.added) {
    hasher.add(static_cast<uint64_t>(token.id));
    hasher.add_field(token.content);
    hasher.add(uint64_t{token.special} | uint64_t{token.normalized && normalized_counts} << 1 |
               uint64_t{token.single_word} << 2 | uint64_t{token.lstrip} << 3 |
               uint64_t{token.rstrip} << 4);
  }
  return hasher.value();
}

BpeParts sorted(BpeParts parts) {
  std::sort(parts.tokens.begin(), parts.tokens.end());
  std::sort(parts.added.begin(), parts.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return parts;
}

// The text to search for to find a token.
std::string text_to_find(const AddedToken& token, bool nfc) {
  return nfc && token.normalized ? normalize_nfc(token.content) : token.content;
}

// Tokens that an encoder searches for in the text as it is, or in the normalized text.
std::vector<AddedToken> tokens_to_match(const BpeParts& parts, Specials specials, bool normalized) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : parts.added) {
    if (token.special && specials == Specials::AsText) continue;
    if (token.normalized != normalized) continue;
    tokens.push_back(token);
    tokens.back().content = text_to_find(token, parts.nfc);
  }
  return tokens;
}

// The class of the character that starts at, or ends before, a byte of valid UTF-8.
CharClass class_at(std::string_view text, size_t at) {
  return CharTable::get()[next_code_point(text, at).value()];
}
size_t begin_of_character(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (text[at] & 0xc0) == 0x80) --at;
  return at;
}
size_t begin_of_previous(std::string_view text, size_t at) {
  return begin_of_character(text, at - 1);
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const auto in_word = [&](size_t at) {
    return is_word_character(next_code_point(text, at).value());
  };
  const bool before = begin > 0 && in_word(begin_of_previous(text, begin));
  return !before && !(end < text.size() && in_word(end));
}

}  // namespace

void check_special_texts(const std::vector<std::string>& texts,
                         const std::vector<std::pair<int32_t, std::string>>& tokens) {
  // Both as plain text and in Hugging Face's byte alphabet, where the two would be one token.
  std::unordered_set<std::string> known;
  for (const auto& [id, bytes] : tokens) {
    known.insert(bytes);
    known.insert(to_byte_alphabet(bytes));
  }
  for (const std::string& text : texts) {
    USER_CHECK(!text.empty(), "a special token is empty, expected some text");
    USER_CHECK(std::count(texts.begin(), texts.end(), text) == 1, "special token ", in_quotes(text),
               " is given twice; give it once");
    USER_CHECK(find_invalid_utf8(text) == text.size(), "special token ", in_quotes(text),
               " is not UTF-8");
    USER_CHECK(!known.contains(text), "special token ", in_quotes(text),
               " is an ordinary token of the vocabulary; give it another text, such as ",
               in_quotes(cat("<|", text, "|>")));
  }
}

BpeTokenizer::BpeTokenizer(BpeParts parts)
    : parts_(sorted(std::move(parts))),
      tokens_(parts_.tokens),
      merge_table_(parts_.merges),
      vocab_size_(tokens_.size()),
      hash_(hash_of(parts_)) {
  const TokenIndex index(tokens_);
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const char text = static_cast<char>(byte);
    byte_ids_[byte] = index.find(tokens_, std::string_view(&text, 1));
    has_all_bytes_ = has_all_bytes_ && byte_ids_[byte] >= 0;
  }
  if (parts_.ignore_merges) index_ = index;
  for (size_t i = 0; i < parts_.added.size(); ++i) {
    added_by_id_.emplace(parts_.added[i].id, i);
    vocab_size_ = std::max<int64_t>(vocab_size_, int64_t{parts_.added[i].id} + 1);
  }
}

std::string_view BpeTokenizer::decode(int32_t id) const {
  const auto added = added_by_id_.find(id);
  if (added != added_by_id_.end()) return parts_.added[added->second].content;
  return id >= 0 && id < tokens_.size() ? tokens_[id] : std::string_view();
}

std::optional<int32_t> BpeTokenizer::find_added(std::string_view content) const {
  for (const AddedToken& token : parts_.added) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

std::optional<int32_t> BpeTokenizer::find_first(std::span<const std::string_view> names) const {
  for (const std::string_view name : names) {
    const auto id = find_added(name);
    if (id) return id;
  }
  return std::nullopt;
}

std::optional<int32_t> BpeTokenizer::begin_token() const {
  return find_first(kBeginNames);
}

std::optional<int32_t> BpeTokenizer::end_token() const {
  return find_first(kEndNames);
}

// Whether a token searched for in plain text starts, ends or continues at this position.
bool BpeTokenizer::touches_added(std::string_view text, size_t at) const {
  for (const AddedToken& token : parts_.added) {
    if (token.special) continue;
    const bool normal = parts_.nfc && token.normalized;
    const std::string wanted = text_to_find(token, parts_.nfc);
    // A text may be several times as long as its normal form.
    const size_t size = wanted.size() * (normal ? 8 : 1);
    const size_t first = begin_of_character(text, at > size ? at - size : 0);
    const size_t last = begin_of_character(text, std::min(at + size, text.size()));
    const std::string_view around = text.substr(first, last - first);
    if (normal) {
      // Text that is not UTF-8 is rejected when it is encoded; any position to split it will do.
      const bool valid = find_invalid_utf8(around) == around.size();
      if (valid && normalize_nfc(around).find(wanted) != std::string::npos) return true;
    } else if (around.find(wanted) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

size_t BpeTokenizer::split(std::string_view text, size_t want) const {
  if (want >= text.size()) return text.size();
  const auto fits = [&](size_t at) {
    return is_certain_word_end(text, at) && !touches_added(text, at);
  };
  for (size_t at = want; at > 0; --at) {
    if (fits(at)) return at;
  }
  for (size_t at = want + 1; at < text.size(); ++at) {
    if (fits(at)) return at;
  }
  return text.size();
}

void check_utf8(std::string_view text, const TextOrigin& origin) {
  const size_t bad = find_invalid_utf8(text);
  INPUT_CHECK(bad == text.size(), origin.where, ": invalid UTF-8 at byte ",
              origin.offset + static_cast<int64_t>(bad));
}

void throw_long_word(const TextOrigin& origin) {
  throw UserError(ExitCode::InputFile, cat(origin.where, ": word of more than ", kMaxWordBytes,
                                           " bytes at byte ", origin.offset, "; this is not text"));
}

AddedMatcher::AddedMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  for (const AddedToken& token : tokens_) {
    first_[static_cast<unsigned char>(token.content.front())] = true;
  }
}

const AddedToken* AddedMatcher::match(std::string_view text, size_t at) const {
  if (!first_[static_cast<unsigned char>(text[at])]) return nullptr;
  for (const AddedToken& token : tokens_) {
    if (text.substr(at).starts_with(token.content)) return &token;
  }
  return nullptr;
}

template <class OnText, class OnToken>
void AddedMatcher::split(std::string_view text, OnText on_text, OnToken on_token) const {
  size_t done = 0;
  for (size_t at = tokens_.empty() ? text.size() : 0; at < text.size();) {
    const AddedToken* token = match(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;  // the next token may begin in white space that this one takes
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    while (token->lstrip && begin > done &&
           class_at(text, begin_of_previous(text, begin)) == CharClass::Space) {
      begin = begin_of_previous(text, begin);
    }
    while (token->rstrip && end < text.size() && class_at(text, end) == CharClass::Space) {
      next_code_point(text, end);
    }
    if (done < begin) on_text(text.substr(done, begin - done));
    on_token(token->id);
    done = end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

BpeEncoder::BpeEncoder(const BpeTokenizer& tokenizer, Specials specials)
    : tokenizer_(tokenizer),
      raw_(tokens_to_match(tokenizer.parts(), specials, false)),
      normalized_(tokens_to_match(tokenizer.parts(), specials, true)),
      merger_(tokenizer.merge_table()),
      cache_(kCacheEntries) {}

void BpeEncoder::encode(std::string_view text, const TextOrigin& origin, std::vector<int32_t>& ids,
                        TextStart start) {
  check_utf8(text, origin);
  raw_.split(
      text,
      [&](std::string_view part) {
        const bool first = part.data() == text.data();
        encode_section(part, origin, ids, first ? start : TextStart::OfDocument);
      },
      [&](int32_t id) { ids.push_back(id); });
}

// Bytes without a token are rare; only then is each word checked.
void BpeEncoder::check_bytes(std::string_view text, const TextOrigin& origin) const {
  if (tokenizer_.has_all_bytes()) return;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    INPUT_CHECK(tokenizer_.byte_id(byte) >= 0, origin.where,
                ": the tokenizer has no token for byte ", int{byte});
  }
}

void BpeEncoder::encode_section(std::string_view text, const TextOrigin& origin,
                                std::vector<int32_t>& ids, TextStart start) {
  const bool prefix = tokenizer_.parts().prefix_space;
  std::string normal;
  if (tokenizer_.parts().nfc) text = normal = normalize_nfc(text);
  normalized_.split(
      text,
      [&](std::string_view part) {
        const bool inside = part.data() == text.data() && start == TextStart::InDocument;
        if (prefix && !inside && !part.starts_with(' ')) {
          encode_words(cat(" ", part), origin, ids);
        } else {
          encode_words(part, origin, ids);
        }
      },
      [&](int32_t id) { ids.push_back(id); });
}

void BpeEncoder::encode_words(std::string_view text, const TextOrigin& origin,
                              std::vector<int32_t>& ids) {
  check_bytes(text, origin);
  for_each_word(tokenizer_.parts().pattern, text, origin,
                [&](std::string_view word) { encode_word(word, ids); });
}

void BpeEncoder::encode_word(std::string_view word, std::vector<int32_t>& ids) {
  if (word.size() >= kKeyBytes) {
    merge_word(word);
    ids.insert(ids.end(), word_ids_.begin(), word_ids_.end());
    return;
  }
  std::array<uint64_t, kKeyBytes / 8> key{};
  std::memcpy(key.data(), word.data(), word.size());
  key.back() |= uint64_t{word.size()} << 56;
  uint64_t hash = 0;
  for (const uint64_t part : key) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  CacheEntry& entry = cache_[hash & (kCacheEntries - 1)];
  if (entry.key != key) {
    merge_word(word);
    if (word_ids_.size() > kCachedIds) {
      ids.insert(ids.end(), word_ids_.begin(), word_ids_.end());
      return;
    }
    entry.key = key;
    entry.count = static_cast<int32_t>(word_ids_.size());
    std::copy(word_ids_.begin(), word_ids_.end(), entry.ids.begin());
  }
  ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
}

// Leaves the ids of a word in word_ids_.
void BpeEncoder::merge_word(std::string_view word) {
  word_ids_.clear();
  const int32_t full = tokenizer_.full_word(word);
  if (full >= 0) {
    word_ids_.push_back(full);
    return;
  }
  for (const char c : word) word_ids_.push_back(tokenizer_.byte_id(static_cast<unsigned char>(c)));
  merger_.merge(word_ids_);
}

}  // namespace weft

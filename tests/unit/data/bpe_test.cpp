// Merging, and the encoder around it: added tokens, words, splitting, bad text.
#include "data/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "support/tiny_bpe.h"
#include "support/user_error.h"

namespace weft {
namespace {

using Ids = std::vector<int32_t>;

// The definition: merge the first pair with the lowest rank until none is left.
Ids merge_slowly(Ids ids, const std::vector<Merge>& merges) {
  for (;;) {
    size_t best_rank = merges.size(), best = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left != ids[i] || merges[rank].right != ids[i + 1]) continue;
        best_rank = rank;
        best = i;
      }
    }
    if (best_rank == merges.size()) return ids;
    ids[best] = merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<int64_t>(best) + 1);
  }
}

TEST(Bpe, ShortAndLongWordsMergeAsDefined) {
  // Three letters and merges of merges, so that ranks compete and overlap.
  std::vector<Merge> merges = {{0, 0, 3}, {1, 0, 4}, {3, 1, 5},  {4, 0, 6},  {3, 3, 7},
                               {2, 5, 8}, {0, 1, 9}, {6, 6, 10}, {9, 2, 11}, {7, 0, 12}};
  const MergeTable table(merges);
  WordMerger merger(table);
  uint32_t state = 1;
  for (const size_t size : {1, 2, 3, 7, 20, 63, 64, 65, 100, 300}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      Ids ids(size);
      for (int32_t& id : ids)
        id = static_cast<int32_t>((state = state * 1664525 + 1013904223) >> 24) % 3;
      const Ids expected = merge_slowly(ids, merges);
      merger.merge(ids);
      EXPECT_EQ(ids, expected);
    }
  }
}

TEST(Bpe, ALongRunOfOneLetterTakesLinearithmicTime) {
  std::vector<Merge> merges;
  for (int32_t i = 0; i < 5; ++i) merges.push_back({i, i, i + 1});
  const MergeTable table(merges);
  WordMerger merger(table);
  Ids ids(1 << 20, 0);
  const auto start = std::chrono::steady_clock::now();
  merger.merge(ids);
  // Quadratic time would take minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(ids, Ids(1 << 15, 5));
}

TEST(Bpe, EncodesWords) {
  EXPECT_EQ(encode_all(tiny_bpe_parts(), "abc ab bc"), (Ids{257, 259, ' ', 258}));
  EXPECT_EQ(encode_all(tiny_bpe_parts(), ""), Ids{});
  EXPECT_EQ(encode_all(tiny_bpe_parts(), "ababab"), (Ids{256, 256, 256}));
  // A word longer than the limits of the cache and the scan, twice.
  std::string text = std::string(100, 'x') + "ab";
  Ids expected(100, 'x');
  expected.push_back(256);
  EXPECT_EQ(encode_all(tiny_bpe_parts(), text), expected);
}

TEST(Bpe, TheCacheChangesNothing) {
  const BpeTokenizer tokenizer(tiny_bpe_parts());
  BpeEncoder encoder(tokenizer, Specials::AsText);
  Ids first, second;
  const std::string text = "abc abc xyzxyzxyz  ab\nabcabcabcabcabcabcabcabcabcabcabc q";
  encoder.encode(text, {"text"}, first);
  encoder.encode(text, {"text"}, second);
  EXPECT_EQ(first, second);
}

TEST(Bpe, IgnoreMergesTakesFullWords) {
  BpeParts parts = tiny_bpe_parts();
  parts.merges = {{'b', 'c', 258}};
  EXPECT_EQ(encode_all(parts, "abc"), (Ids{'a', 258}));
  parts.ignore_merges = true;
  EXPECT_EQ(encode_all(parts, "abc"), (Ids{257}));
}

TEST(Bpe, SpecialTokensAreTextUnlessAskedFor) {
  const std::string text = "ab<|endoftext|>ab";
  EXPECT_EQ(encode_all(tiny_bpe_parts(), text).size(), 2 + 13U);
  EXPECT_EQ(encode_all(tiny_bpe_parts(), text, Specials::AsTokens), (Ids{256, 260, 256}));
}

TEST(Bpe, AddedTokens) {
  BpeParts parts = tiny_bpe_parts();
  parts.added = {{.id = 300, .content = "qu", .special = false},
                 {.id = 301, .content = "qux", .special = false},
                 {.id = 302, .content = "[L]", .special = false, .lstrip = true},
                 {.id = 303, .content = "[R]", .special = false, .rstrip = true},
                 {.id = 304, .content = "it", .special = false, .single_word = true}};
  EXPECT_EQ(encode_all(parts, "quxqu"), (Ids{301, 300}));
  EXPECT_EQ(encode_all(parts, "a [L] b"), (Ids{'a', 302, ' ', 'b'}));
  EXPECT_EQ(encode_all(parts, "a [R] b"), (Ids{'a', ' ', 303, 'b'}));
  EXPECT_EQ(encode_all(parts, "[R]  [L]b"), (Ids{303, 302, 'b'}));
  EXPECT_EQ(encode_all(parts, "it its it"), (Ids{304, ' ', 'i', 't', 's', ' ', 304}));
}

TEST(Bpe, NormalizesBetweenAddedTokens) {
  BpeParts parts = tiny_bpe_parts();
  parts.nfc = true;
  parts.added = {{.id = 300, .content = "\xc3\xa9!", .special = false, .normalized = true}};
  EXPECT_EQ(encode_all(parts, "e\xcc\x81"), (Ids{0xc3, 0xa9}));
  EXPECT_EQ(encode_all(parts, "e\xcc\x81!"), (Ids{300}));
}

// As in Hugging Face, both the token and the text are normalized, also for special tokens.
TEST(Bpe, NormalizedTokensAreFoundInNormalizedText) {
  const std::string composed = "\xc3\xa9!", apart = "e\xcc\x81!";
  BpeParts parts = tiny_bpe_parts();
  parts.nfc = true;
  for (const bool special : {false, true}) {
    for (const std::string& content : {composed, apart}) {
      parts.added = {{.id = 300, .content = content, .special = special, .normalized = true}};
      EXPECT_EQ(encode_all(parts, composed, Specials::AsTokens), (Ids{300}));
      EXPECT_EQ(encode_all(parts, apart, Specials::AsTokens), (Ids{300}));
      parts.added[0].normalized = false;
      EXPECT_EQ(encode_all(parts, content, Specials::AsTokens), (Ids{300}));
      EXPECT_EQ(encode_all(parts, content == composed ? apart : composed, Specials::AsTokens),
                (Ids{0xc3, 0xa9, '!'}));
    }
  }
}

// The normal form around a position decides whether the text may be split there.
TEST(Bpe, DoesNotSplitNormalizedTokens) {
  BpeParts parts = tiny_bpe_parts();
  parts.nfc = true;
  parts.added = {{.id = 300, .content = "\xc3\xa9 x", .special = false, .normalized = true}};
  const std::string text = "abc e\xcc\x81 x abc";
  const size_t split = BpeTokenizer(parts).split(text, 7);
  Ids ids = encode_all(parts, text.substr(0, split));
  for (const int32_t id : encode_all(parts, text.substr(split))) ids.push_back(id);
  EXPECT_EQ(ids, encode_all(parts, text));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 300), 1);
  EXPECT_LE(BpeTokenizer(parts).split("abc \xff\xff\xff abc", 7), 11U);
}

// Hugging Face's word characters are those of Rust's \w.
TEST(Bpe, SingleWordsEndAtOtherCharacters) {
  BpeParts parts = tiny_bpe_parts();
  parts.added = {{.id = 300, .content = "it", .special = false, .single_word = true}};
  for (const char* word : {"s", "9", "_", "\xc3\xa9", "\xcc\x81", "\xe2\x80\xbf", "\xe2\x80\x8c",
                           "\xe2\x80\x8d", "\xe2\x85\xa7", "\xe2\x92\xb6"}) {
    EXPECT_NE(encode_all(parts, cat("it", word)).front(), 300) << word;
    EXPECT_NE(encode_all(parts, cat(word, "it")).back(), 300) << word;
  }
  for (const char* other : {" ", "-", "\xc2\xb2", "\xc2\xbd", "\xe2\x91\xa0", "\xc2\xb7"}) {
    EXPECT_EQ(encode_all(parts, cat("it", other)).front(), 300) << other;
    EXPECT_EQ(encode_all(parts, cat(other, "it")).back(), 300) << other;
  }
}

// The space goes before the start of a document and after added tokens, unless there is one.
TEST(Bpe, PutsASpaceBeforeTheText) {
  BpeParts parts = tiny_bpe_parts();
  parts.added = {{.id = 300, .content = "[X]", .special = false}};
  const uint64_t without = BpeTokenizer(parts).hash();
  parts.prefix_space = true;
  EXPECT_NE(BpeTokenizer(parts).hash(), without);
  EXPECT_EQ(encode_all(parts, "ab c"), (Ids{259, ' ', 'c'}));
  EXPECT_EQ(encode_all(parts, " ab"), (Ids{259}));
  EXPECT_EQ(encode_all(parts, "[X]ab[X] ab[X]"), (Ids{300, 259, 300, 259, 300}));
  EXPECT_EQ(encode_all(parts, ""), Ids{});
  const BpeTokenizer tokenizer(parts);
  Ids ids;
  BpeEncoder(tokenizer, Specials::AsText).encode("ab[X]ab", {"text"}, ids, TextStart::InDocument);
  EXPECT_EQ(ids, (Ids{256, 300, 259}));
}

TEST(Bpe, SplitTextsGiveTheSameIds) {
  BpeParts parts = tiny_bpe_parts();
  parts.added.push_back({.id = 300, .content = "b c", .special = false});
  parts.added.push_back({.id = 301, .content = "ab", .special = false, .rstrip = true});
  const BpeTokenizer tokenizer(parts);
  const std::string text = "ab b c abc, bc b c x y. abcab  b cab cb c\n ab";
  const Ids full = encode_all(parts, text);
  for (size_t want = 1; want < text.size(); ++want) {
    const size_t split = tokenizer.split(text, want);
    Ids ids = encode_all(parts, text.substr(0, split));
    const Ids rest = encode_all(parts, text.substr(split));
    ids.insert(ids.end(), rest.begin(), rest.end());
    EXPECT_EQ(ids, full) << want << " " << split;
  }
  EXPECT_EQ(tokenizer.split(text, 25), 23U);
  EXPECT_EQ(tokenizer.split("abcabc", 3), 6U);
}

TEST(Bpe, BadText) {
  const auto expect = [](const std::string& message, BpeParts parts, const std::string& text) {
    expect_user_error(ExitCode::InputFile, message, [&] { encode_all(parts, text); });
  };
  expect("text: invalid UTF-8 at byte 2", tiny_bpe_parts(), "ab\xff");
  BpeParts parts = tiny_bpe_parts();
  parts.tokens.erase(parts.tokens.begin() + 'x');
  expect("text: the tokenizer has no token for byte 120", parts, "axb");
  expect("text: word of more than 16777216 bytes at byte 0; this is not text", tiny_bpe_parts(),
         std::string(kMaxWordBytes + 1, 'a'));
}

TEST(Bpe, DecodesEveryId) {
  const BpeTokenizer tokenizer(tiny_bpe_parts());
  EXPECT_EQ(tokenizer.decode(257), "abc");
  EXPECT_EQ(tokenizer.decode(260), "<|endoftext|>");
  EXPECT_EQ(tokenizer.decode(261), "");
  EXPECT_EQ(tokenizer.decode(-1), "");
  EXPECT_EQ(tokenizer.vocab_size(), 261);
  EXPECT_EQ(tokenizer.end_token(), 260);
}

TEST(Bpe, TheHashTellsTokenizersApart) {
  const uint64_t hash = BpeTokenizer(tiny_bpe_parts()).hash();
  EXPECT_EQ(hash, BpeTokenizer(tiny_bpe_parts()).hash());
  BpeParts parts = tiny_bpe_parts();
  std::reverse(parts.tokens.begin(), parts.tokens.end());
  EXPECT_EQ(hash, BpeTokenizer(parts).hash()) << "the order of a file does not matter";
  std::swap(parts.merges[0], parts.merges[1]);
  EXPECT_NE(hash, BpeTokenizer(parts).hash());
  parts = tiny_bpe_parts();
  parts.pattern = SplitPattern::Llama3;
  EXPECT_NE(hash, BpeTokenizer(parts).hash());
  parts = tiny_bpe_parts();
  parts.added[0].special = false;
  EXPECT_NE(hash, BpeTokenizer(parts).hash());
}

// Files of one tokenizer differ in a flag that only matters with normalization or with other added
// tokens.
TEST(Bpe, TheHashLeavesOutWhatChangesNothing) {
  BpeParts parts = tiny_bpe_parts();
  const uint64_t hash = BpeTokenizer(parts).hash();
  parts.added[0].normalized = true;
  EXPECT_EQ(BpeTokenizer(parts).hash(), hash);
  parts.nfc = true;
  const uint64_t normalized = BpeTokenizer(parts).hash();
  parts.added[0].normalized = false;
  EXPECT_NE(BpeTokenizer(parts).hash(), normalized);
  parts.nfc = false;
  parts.added.push_back({.id = 261, .content = "<|e", .special = false});
  const uint64_t both_raw = BpeTokenizer(parts).hash();
  parts.added[0].normalized = true;
  EXPECT_NE(BpeTokenizer(parts).hash(), both_raw);
}

}  // namespace
}  // namespace weft

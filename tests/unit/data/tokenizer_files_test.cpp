// Tokenizer files: what is read, what is rejected and how, and the round trip through writing.
#include "data/tokenizer_files.h"

#include <gtest/gtest.h>

#include "data/byte_alphabet.h"
#include "data/tokenizer_json.h"
#include "support/temp_folder.h"
#include "support/tiny_bpe.h"
#include "support/user_error.h"

namespace weft {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kByteLevel = R"({"type":"ByteLevel","add_prefix_space":false})";

// A tokenizer.json with the tokens a, b, ab and these other parts.
std::string small_json(const std::string& pre_tokenizer = kByteLevel,
                       const std::string& merges = R"(["a b"])",
                       const std::string& vocab = R"({"a":0,"b":1,"ab":2})",
                       const std::string& more = "") {
  return R"({"model":{"type":"BPE","vocab":)" + vocab + R"(,"merges":)" + merges +
         R"(},"pre_tokenizer":)" + pre_tokenizer + more + "}";
}

void expect_json_error(const std::string& message, const std::string& json) {
  expect_user_error(ExitCode::InputFile, message, [&] { parse_tokenizer_json(json, "t.json"); });
}

TEST(TokenizerJson, BothSpellingsOfMerges) {
  const BpeParts old_form = parse_tokenizer_json(small_json(), "t.json");
  const BpeParts new_form =
      parse_tokenizer_json(small_json(kByteLevel, R"([["a","b"]])"), "t.json");
  EXPECT_EQ(old_form.merges, (std::vector<Merge>{{0, 1, 2}}));
  EXPECT_EQ(BpeTokenizer(old_form).hash(), BpeTokenizer(new_form).hash());
  EXPECT_EQ(encode_all(old_form, "abba"), (Ids{2, 1, 0}));
}

TEST(TokenizerJson, WhatIsWrittenReadsBack) {
  for (const auto pattern : {SplitPattern::Gpt2, SplitPattern::Llama3, SplitPattern::Qwen2,
                             SplitPattern::DeepSeek3, SplitPattern::O200k}) {
    BpeParts parts = tiny_bpe_parts();
    parts.pattern = pattern;
    parts.prefix_space = pattern == SplitPattern::Gpt2;
    parts.nfc = pattern == SplitPattern::Qwen2;
    parts.ignore_merges = pattern == SplitPattern::Llama3;
    parts.added.push_back({.id = 300,
                           .content = "<\xef\xbd\x9c\xe2\x96\x81>",
                           .special = false,
                           .normalized = true,
                           .lstrip = true});
    parts.tokens.emplace_back(300, "<\xef\xbd\x9c\xe2\x96\x81>");
    const std::string text = tokenizer_json_text(parts);
    const BpeParts again = parse_tokenizer_json(text, "t.json");
    EXPECT_EQ(BpeTokenizer(again).hash(), BpeTokenizer(parts).hash());
    EXPECT_EQ(tokenizer_json_text(BpeTokenizer(again).parts()), text);
  }
}

TEST(TokenizerJson, RefusesWhatWouldChangeIds) {
  const auto with = [](const std::string& more) {
    return small_json(kByteLevel, R"(["a b"])", R"({"a":0,"b":1,"ab":2})", more);
  };
  expect_json_error("t.json: model is \"Unigram\", expected \"BPE\"",
                    R"({"model":{"type":"Unigram"}})");
  expect_json_error("t.json: \"byte_fallback\" is true, expected a byte-level model",
                    R"({"model":{"byte_fallback":true}})");
  expect_json_error("t.json: \"end_of_word_suffix\" is set, expected none in a byte-level model",
                    R"({"model":{"end_of_word_suffix":"</w>"}})");
  expect_json_error("t.json: \"dropout\" is 0.1, which drops merges at random; expected none",
                    R"({"model":{"dropout":0.1}})");
  expect_json_error("t.json: \"dropout\" is true, which drops merges at random; expected none",
                    R"({"model":{"dropout":true}})");
  expect_json_error("t.json: normalizer \"Lowercase\" is unknown, expected NFC or none",
                    with(R"(,"normalizer":{"type":"Lowercase"})"));
  expect_json_error("t.json: normalizer \"NFKC\" is unknown, expected NFC or none",
                    with(R"(,"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"}]})"));
  expect_json_error("t.json: \"normalizers\" is a string, expected an array",
                    with(R"(,"normalizer":{"type":"Sequence","normalizers":"NFC"})"));
  expect_json_error("t.json: \"pretokenizers\" is an object, expected an array",
                    small_json(R"({"type":"Sequence","pretokenizers":{}})"));
  expect_json_error("t.json: no ByteLevel pre-tokenizer, expected a byte-level model",
                    R"({"model":{"vocab":{"a":0},"merges":[]}})");
  expect_json_error(
      "t.json: pre-tokenizer \"Metaspace\" is unknown here, expected splits and then ByteLevel",
      small_json(R"({"type":"Metaspace"})"));
  expect_json_error(
      "t.json: \"add_prefix_space\" is true after a split, which would put a space before every "
      "word; expected false",
      small_json(R"({"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated",)"
                 R"("pattern":{"Regex":"x"}},{"type":"ByteLevel","add_prefix_space":true}]})"));
  expect_json_error("t.json: no split pattern, expected one",
                    small_json(R"({"type":"ByteLevel","use_regex":false})"));
  expect_json_error(
      "t.json: split has behavior \"Removed\" or is inverted, expected \"Isolated\" and not "
      "inverted",
      small_json(R"({"type":"Split","behavior":"Removed"})"));
}

TEST(TokenizerJson, RefusesBadTables) {
  const auto vocab = [](const std::string& text) { return small_json(kByteLevel, "[]", text); };
  expect_json_error("t.json: tokens \"a\" and \"b\" both have id 0", vocab(R"({"a":0,"b":0})"));
  expect_json_error("t.json: token \"a\" has id 4194304, expected 0 to 4194303",
                    vocab(R"({"a":4194304})"));
  expect_json_error("t.json: token \"a\" has id -1, expected 0 to 4194303", vocab(R"({"a":-1})"));
  expect_json_error("t.json: the vocabulary is empty, expected ids by token", vocab("{}"));
  expect_json_error("t.json: a token of the vocabulary is empty", vocab(R"({"":0})"));
  expect_json_error("t.json:1: duplicate key \"a\"", vocab(R"({"a":0,"a":1})"));
  expect_json_error("t.json: merge 1 uses token \"c\", which the vocabulary lacks",
                    small_json(kByteLevel, R"(["a c"])"));
  expect_json_error("t.json: merge 1 is \"ab\", expected two tokens with a space between",
                    small_json(kByteLevel, R"(["ab"])"));
  expect_json_error("t.json: merge 1 is a number, expected a string or a pair of strings",
                    small_json(kByteLevel, "[1]"));
  const auto added = [](const std::string& text) {
    return small_json(kByteLevel, "[]", R"({"a":0})", ",\"added_tokens\":" + text);
  };
  expect_json_error("t.json: \"added_tokens\" is an object, expected an array", added("{}"));
  expect_json_error("t.json: an added token is empty", added(R"([{"id":5,"content":""}])"));
  expect_json_error("t.json: added token \"a\" has id 5, in the vocabulary it has 0",
                    added(R"([{"id":5,"content":"a"}])"));
  expect_json_error("t.json: id 0 of added token \"x\" belongs to another token",
                    added(R"([{"id":0,"content":"x"}])"));
  expect_json_error("t.json: id 5 of added token \"y\" belongs to another token",
                    added(R"([{"id":5,"content":"x"},{"id":5,"content":"y"}])"));
  expect_json_error("t.json:1: JSON is nested deeper than 64 levels", std::string(100, '['));
  expect_json_error("t.json:1: malformed JSON at byte 1", "");
}

TEST(Gpt2Files, TokensThatNothingMakesAreSpecial) {
  const BpeParts parts = parse_gpt2_files(R"({"a":0,"b":1,"ab":2,"<|endoftext|>":3})", "e.json",
                                          "#version: 0.2\na b\n\n", "v.bpe");
  ASSERT_EQ(parts.added.size(), 1U);
  EXPECT_EQ(parts.added[0].content, "<|endoftext|>");
  EXPECT_EQ(encode_all(parts, "ab<|endoftext|>", Specials::AsTokens), (Ids{2, 3}));
  expect_user_error(ExitCode::InputFile,
                    "v.bpe:1: line is \"ab\", expected two tokens with a space between",
                    [] { parse_gpt2_files(R"({"a":0})", "e.json", "ab", "v.bpe"); });
}

TEST(Gpt2Files, AMissingMergeIsNoticed) {
  const auto expect = [](const std::string& message, const std::string& vocab,
                         const std::string& merges) {
    expect_user_error(ExitCode::InputFile, message,
                      [&] { parse_gpt2_files(vocab, "e.json", merges, "v.bpe"); });
  };
  const std::string vocab = R"({"a":0,"b":1,"ab":2,"aba":3,"<|endoftext|>":4})";
  const std::string split =
      "v.bpe: no merge makes token \"aba\", which is not a special token; is the file complete?";
  EXPECT_EQ(parse_gpt2_files(vocab, "e.json", "a b\nab a\n", "v.bpe").added.size(), 1U);
  expect(split, vocab, "a b\n");
  // Half of a character, which is not valid text by itself.
  const std::string half =
      "v.bpe: no merge makes token \"a\xc3\x83\", which is not a special token; is the file "
      "complete?";
  expect(half, "{\"a\":0,\"\xc3\x83\":1,\"a\xc3\x83\":2}", "");
  std::string many = R"({"a":0)";
  for (int i = 1; i <= 1025; ++i) many += cat(",\"<", i, ">\":", i);
  expect(
      "v.bpe: no merge makes 1025 tokens, expected at most 1024 special ones; is the file "
      "complete?",
      many + "}", "");
}

// Hugging Face keeps the ids of added tokens whose text is already in the vocabulary.
TEST(Gpt2Files, SpecialTokensAreWrittenAsTheyAre) {
  const std::string vocab = "{\"a\":0,\"<\xef\xbd\x9c>\":1,\"\xc3\xa9!\":2}";
  const BpeTokenizer tokenizer(parse_gpt2_files(vocab, "e.json", "", "v.bpe"));
  const std::string text = tokenizer_json_text(tokenizer.parts());
  EXPECT_NE(text.find("\"<\xef\xbd\x9c>\": 1"), std::string::npos) << text;
  EXPECT_NE(text.find("\"\xc3\xa9!\": 2"), std::string::npos) << text;
  EXPECT_EQ(tokenizer.find_added("\xc3\xa9!"), 2);
  EXPECT_EQ(BpeTokenizer(parse_tokenizer_json(text, "again")).hash(), tokenizer.hash());
}

TEST(Tiktoken, RanksMergeInOrder) {
  // a, b, c, ab, bc, abc
  const std::string text = "YQ== 0\nYg== 1\nYw== 2\nYWI= 3\nYmM= 4\nYWJj 5\n";
  const BpeParts parts = parse_tiktoken(
      text, "t", {.pattern = SplitPattern::Llama3, .special = {{.id = 9, .content = "<e>"}}});
  EXPECT_EQ(parts.merges, (std::vector<Merge>{{0, 1, 3}, {1, 2, 4}, {0, 4, 5}, {3, 2, 5}}));
  EXPECT_EQ(encode_all(parts, "abcbc"), (Ids{5, 4}));
  EXPECT_EQ(encode_all(parts, "abc<e>", Specials::AsTokens), (Ids{5, 9}));
}

// Hugging Face numbers added tokens from the end of the vocabulary, unless they are in it: here
// from 256, with one between the ranks.
TEST(Tiktoken, SpecialTokensKeepTheirIdsInHuggingFace) {
  const BpeTokenizer tokenizer(parse_tiktoken(
      "YQ== 0\nYg== 3\n", "t",
      {.special = {{.id = 9, .content = "<e>"}, {.id = 1, .content = "<\xc3\xa9 >"}}}));
  const std::string text = tokenizer_json_text(tokenizer.parts());
  EXPECT_NE(text.find(R"("<e>": 9)"), std::string::npos) << text;
  EXPECT_NE(text.find("\"<\xc3\xa9 >\": 1"), std::string::npos) << text;
  EXPECT_EQ(tokenizer.vocab_size(), 10);
  EXPECT_EQ(encode_all(tokenizer.parts(), "a<e>b<\xc3\xa9 >", Specials::AsTokens),
            (Ids{0, 9, 3, 1}));
  EXPECT_EQ(BpeTokenizer(parse_tokenizer_json(text, "again")).hash(), tokenizer.hash());
}

TEST(Tiktoken, BadSpecialTokens) {
  const auto expect = [](const std::string& message, const std::string& content) {
    expect_user_error(ExitCode::Config, message, [&] {
      // a, ab, and the byte that U+00E9 represents.
      parse_tiktoken("YQ== 0\nYWI= 1\n6Q== 2\n", "t", {.special = {{.id = 9, .content = content}}});
    });
  };
  expect(
      "special token \"ab\" is an ordinary token of the vocabulary; give it another text, such as "
      "\"<|ab|>\"",
      "ab");
  expect(
      "special token \"\xc3\xa9\" is an ordinary token of the vocabulary; give it another text, "
      "such "
      "as \"<|\xc3\xa9|>\"",
      "\xc3\xa9");
  expect("special token \"<\xff>\" is not UTF-8", "<\xff>");
  expect("special token \"end\" is a word that text may hold; put brackets around it", "end");
}

TEST(Tiktoken, BadLines) {
  const auto expect = [](const std::string& message, const std::string& text) {
    expect_user_error(ExitCode::InputFile, message, [&] { parse_tiktoken(text, "t", {}); });
  };
  expect("t:1: line is \"YQ==\", expected a base64 token and its rank", "YQ==\n");
  expect("t:2: line is \"Y$== 1\", expected a base64 token and its rank", "YQ== 0\nY$== 1\n");
  expect("t:1: line is \"YQ== x\", expected a base64 token and its rank", "YQ== x\n");
  expect("t:1: rank is 4194304, expected 0 to 4194303", "YQ== 4194304\n");
  expect("t:2: token or rank 0 appears twice", "YQ== 0\nYg== 0\n");
  expect("t:2: token or rank 1 appears twice", "YQ== 0\nYQ== 1\n");
  expect("t: the file holds no tokens", "\n");
  expect("t:1: token has 258 bytes, expected at most 256", std::string(344, 'A') + " 0");
  expect_user_error(
      ExitCode::Config, "special token \"<e>\" has id 0, which belongs to another token",
      [] { parse_tiktoken("YQ== 0", "t", {.special = {{.id = 0, .content = "<e>"}}}); });
}

TEST(LoadBpe, FindsTheFilesOfAPath) {
  const TempFolder folder;
  const std::string json = tokenizer_json_text(tiny_bpe_parts());
  const uint64_t hash = BpeTokenizer(tiny_bpe_parts()).hash();
  folder.write("tokenizer.json", json);
  EXPECT_EQ(load_bpe(folder.path()).tokenizer->hash(), hash);
  EXPECT_EQ(load_bpe(folder / "tokenizer.json").json, json);
  std::filesystem::create_directories(folder / "old");
  folder.write("old/encoder.json", R"({"a":0,"b":1,"ab":2})");
  folder.write("old/vocab.bpe", "#version: 0.2\na b\n");
  EXPECT_EQ(load_bpe(folder / "old").tokenizer->vocab_size(), 3);
  EXPECT_EQ(load_bpe(folder / "old").tokenizer->parts().pattern, SplitPattern::Gpt2);
  EXPECT_EQ(
      load_bpe(folder / "old", {.pattern = "qwen2", .special = {}}).tokenizer->parts().pattern,
      SplitPattern::Qwen2);
  const std::string ranks = folder.write("x.tiktoken", "YQ== 0\n");
  const auto loaded = load_bpe(ranks, {.pattern = "llama3", .special = {"<e>=7"}});
  EXPECT_EQ(loaded.tokenizer->find_added("<e>"), 7);
  EXPECT_EQ(bpe_from_json(loaded.json, "again").tokenizer->hash(), loaded.tokenizer->hash());
}

TEST(LoadBpe, SaysWhatIsMissing) {
  const TempFolder folder;
  expect_user_error(
      ExitCode::InputFile,
      cat(folder.path(), ": the folder holds no tokenizer.json, encoder.json or vocab.json"),
      [&] { load_bpe(folder.path()); });
  const std::string ranks = folder.write("x.tiktoken", "YQ== 0\n");
  expect_user_error(ExitCode::Config,
                    cat(ranks,
                        ": a .tiktoken file does not say how text is split; give a split pattern, "
                        "such as llama3"),
                    [&] { load_bpe(ranks); });
  expect_user_error(ExitCode::Config,
                    "special token \"<e>\" is not of the form text=id with an id below 4194304",
                    [&] { load_bpe(ranks, {.pattern = "gpt2", .special = {"<e>"}}); });
  const std::string json = folder.write("tokenizer.json", "{}");
  expect_user_error(
      ExitCode::Config,
      cat(json, ": a split pattern is given, which the file itself names; leave it out"),
      [&] { load_bpe(json, {.pattern = "gpt2", .special = {}}); });
  expect_user_error(
      ExitCode::Config,
      cat(json, ": a special token is given, which only .tiktoken files need; leave it out"),
      [&] { load_bpe(json, {.pattern = "", .special = {"<e>=7"}}); });
}

TEST(ByteAlphabet, IsABijection) {
  const std::string bytes = bytes_in_alphabet_order();
  EXPECT_EQ(bytes.size(), 256U);
  EXPECT_EQ(bytes[0], '!');
  EXPECT_EQ(bytes[188], '\0');
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(bytes)), bytes);
  EXPECT_EQ(to_byte_alphabet(" a\n"),
            "\xc4\xa0"
            "a\xc4\x8a");
  EXPECT_EQ(from_byte_alphabet(" "), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("\xff"), std::nullopt);
}

}  // namespace
}  // namespace weft

// Training merges: counts decide, ties go to smaller ids, threads change nothing.
#include "data/train_bpe.h"

#include <gtest/gtest.h>

#include "data/byte_alphabet.h"
#include "data/tokenizer_json.h"
#include "support/temp_folder.h"
#include "support/tiny_bpe.h"
#include "support/user_error.h"

namespace weft {
namespace {

// The tokens that merges produce, as text.
std::vector<std::string> made(const std::vector<WordCount>& words, int64_t most) {
  const std::string bytes = bytes_in_alphabet_order();
  std::vector<std::string> tokens;
  for (const char byte : bytes) tokens.emplace_back(1, byte);
  for (const Merge& merge : train_merges(words, most)) {
    tokens.push_back(tokens[static_cast<size_t>(merge.left)] +
                     tokens[static_cast<size_t>(merge.right)]);
  }
  return {tokens.begin() + 256, tokens.end()};
}

using Texts = std::vector<std::string>;

TEST(TrainBpe, TheMostFrequentPairComesFirst) {
  // ab 5+3, bc 5, xy 4; then "ab"+"c" 5.
  EXPECT_EQ(made({{"abc", 5}, {"ab", 3}, {"xy", 4}}, 10), (Texts{"ab", "abc", "xy"}));
  EXPECT_EQ(made({{"abc", 5}, {"ab", 3}, {"xy", 4}}, 1), (Texts{"ab"}));
}

TEST(TrainBpe, TiesGoToSmallerIds) {
  EXPECT_EQ(made({{"zy", 2}, {"ba", 2}, {"bc", 2}}, 3), (Texts{"ba", "bc", "zy"}));
}

TEST(TrainBpe, RunsAreCountedAsTheyMerge) {
  // aaaaa: aa 4 times; merged from the left: aa aa a, where aa + a has the smaller ids.
  EXPECT_EQ(made({{"aaaaa", 1}}, 3), (Texts{"aa", "aaa", "aaaaa"}));
}

TEST(TrainBpe, WritesATokenizerThatEncodes) {
  const TempFolder folder;
  folder.write("a.txt", "low low lower lowest newer wider low");
  folder.write("b.jsonl", "{\"text\": \"low lower\"}\n");
  std::FILE* progress = std::tmpfile();
  TrainBpeOptions options{.inputs = {folder / "a.txt", folder / "b.jsonl"},
                          .vocab_size = 261,
                          .special = {"<|endoftext|>"},
                          .threads = 1,
                          .progress = {.stream = progress, .live = false}};
  const BpeParts parts = train_bpe(options);
  options.threads = 3;
  EXPECT_EQ(tokenizer_json_text(parts), tokenizer_json_text(train_bpe(options)));
  EXPECT_EQ(parts.tokens.size(), 260U);
  EXPECT_EQ(parts.added[0].id, 260);
  // lo 7, low 7, " low" 5, er 4 (lower, newer, wider, lower).
  EXPECT_EQ(parts.tokens[257].second, "low");
  EXPECT_EQ(parts.tokens[258].second, " low");
  EXPECT_EQ(parts.tokens[259].second, "er");
  const BpeParts again = parse_tokenizer_json(tokenizer_json_text(parts), "t.json");
  EXPECT_EQ(encode_all(again, "low lower"), (std::vector<int32_t>{257, 258, 259}));
  options.vocab_size = 256;
  expect_user_error(ExitCode::Config,
                    "command line: --vocab-size 256 is out of range, expected 257 to 4194304: "
                    "256 bytes and 1 special token",
                    [&] { train_bpe(options); });
  options.vocab_size = 300;
  const auto expect_special_error = [&](const std::string& message) {
    expect_user_error(ExitCode::Config, message, [&] { train_bpe(options); });
  };
  options.special = {"<e>", "<e>"};
  expect_special_error("special token \"<e>\" is given twice; give it once");
  options.special = {"<\xff>"};
  expect_special_error("special token \"<\xff>\" is not UTF-8");
  for (const char* token : {"e", "low"}) {
    options.special = {token};
    expect_special_error(
        cat("special token \"", token,
            "\" is an ordinary token of the vocabulary; give it another text, such "
            "as \"<|",
            token, "|>\""));
  }
  std::fclose(progress);
}

TEST(TrainBpe, AWordThatIsNoTextIsRefused) {
  const TempFolder folder;
  std::FILE* progress = std::tmpfile();
  const TrainBpeOptions options{
      .inputs = {folder.write("a.jsonl",
                              "{\"text\": \"a " + std::string(kMaxWordBytes + 1, 'x') + "\"}")},
      .vocab_size = 300,
      .threads = 1,
      .progress = {.stream = progress, .live = false}};
  expect_user_error(
      ExitCode::InputFile,
      cat(folder / "a.jsonl", ": word of more than 16777216 bytes at byte 1; this is not text"),
      [&] { train_bpe(options); });
  std::fclose(progress);
}

}  // namespace
}  // namespace weft

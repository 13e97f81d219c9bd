// Words of each split pattern, worked out from its regular expression.
#include "data/pretokenize.h"

#include <gtest/gtest.h>

#include "support/user_error.h"

namespace weft {
namespace {

using Words = std::vector<std::string>;

Words words(SplitPattern pattern, std::string_view text) {
  Words found;
  for (size_t at = 0; at < text.size();) {
    const size_t end = next_word(pattern, text, at);
    found.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return found;
}

TEST(Pretokenize, Gpt2) {
  const auto split = [](std::string_view text) { return words(SplitPattern::Gpt2, text); };
  EXPECT_EQ(split("it's we'll I'VE"), (Words{"it", "'s", " we", "'ll", " I", "'", "VE"}));
  EXPECT_EQ(split("a1234 56b"), (Words{"a", "1234", " 56", "b"}));
  EXPECT_EQ(split("hi  there\n\nyou "), (Words{"hi", " ", " there", "\n", "\n", "you", " "}));
  EXPECT_EQ(split("end  \n"), (Words{"end", "  \n"}));
  EXPECT_EQ(split(" ?!\t!"), (Words{" ?!", "\t", "!"}));
  // e acute is a letter, a combining acute is not, U+3000 is white space, U+00B2 a number.
  EXPECT_EQ(split("\xc3\xa9t\xc3\xa9"), (Words{"\xc3\xa9t\xc3\xa9"}));
  EXPECT_EQ(split("e\xcc\x81"), (Words{"e", "\xcc\x81"}));
  EXPECT_EQ(split("a\xe3\x80\x80z"), (Words{"a", "\xe3\x80\x80", "z"}));
  EXPECT_EQ(split("x\xc2\xb2"), (Words{"x", "\xc2\xb2"}));
}

TEST(Pretokenize, Llama3) {
  const auto split = [](std::string_view text) { return words(SplitPattern::Llama3, text); };
  EXPECT_EQ(split("I'VE it'\xc5\xbf"), (Words{"I", "'VE", " it", "'\xc5\xbf"}));
  EXPECT_EQ(split("12345 67"), (Words{"123", "45", " ", "67"}));
  EXPECT_EQ(split("(foo) .bar\tx"), (Words{"(foo", ")", " .", "bar", "\tx"}));
  EXPECT_EQ(split("a;\n\n  b"), (Words{"a", ";\n\n", " ", " b"}));
  EXPECT_EQ(split("a \n \n  b"), (Words{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(split("\nb"), (Words{"\n", "b"}));
  EXPECT_EQ(split("b  "), (Words{"b", "  "}));
}

TEST(Pretokenize, Qwen2KeepsDigitsApart) {
  EXPECT_EQ(words(SplitPattern::Qwen2, "a123"), (Words{"a", "1", "2", "3"}));
}

TEST(Pretokenize, DeepSeek3) {
  const auto split = [](std::string_view text) { return words(SplitPattern::DeepSeek3, text); };
  EXPECT_EQ(split("a1234b"), (Words{"a", "123", "4", "b"}));
  EXPECT_EQ(split("it's .foo-bar"), (Words{"it", "'s", " .", "foo", "-bar"}));
  EXPECT_EQ(split("e\xcc\x81!"), (Words{"e\xcc\x81", "!"}));
  // Two Chinese characters are separate words; white space before a digit is treated as at the end.
  EXPECT_EQ(split("a\xe4\xb8\x80\xe4\xba\x8c"
                  "b"),
            (Words{"a", "\xe4\xb8\x80\xe4\xba\x8c", "b"}));
  EXPECT_EQ(split("a  1"), (Words{"a", "  ", "1"}));
  // Text that matches nothing stays in one word until something matches.
  EXPECT_EQ(split("\x01\x02"
                  "a\x01"),
            (Words{"\x01",
                   "\x02"
                   "a",
                   "\x01"}));
  EXPECT_EQ(split("\x01\x02!"), (Words{"\x01\x02", "!"}));
}

TEST(Pretokenize, O200k) {
  const auto split = [](std::string_view text) { return words(SplitPattern::O200k, text); };
  EXPECT_EQ(split("camelCase HTTPServer IT'S we'll"),
            (Words{"camel", "Case", " HTTPServer", " IT'S", " we'll"}));
  EXPECT_EQ(split("'sun 12345a (x)/\n/ y"),
            (Words{"'sun", " ", "123", "45", "a", " (", "x", ")/\n/", " y"}));
  EXPECT_EQ(split("a \n \n  b\tC"), (Words{"a", " \n \n", " ", " b", "\tC"}));
  // A letter without a case, here U+4E00, counts as either case; if no lower-case letter follows, a
  // word ends with the last such letter.
  EXPECT_EQ(split("A\xe4\xb8\x80"
                  "BC!"),
            (Words{"A\xe4\xb8\x80", "BC", "!"}));
  // A mark is a prefix of a word like punctuation, or a word by itself before a capital.
  EXPECT_EQ(split("\xcc\x81x"), (Words{"\xcc\x81x"}));
  EXPECT_EQ(split("\xcc\x81X"), (Words{"\xcc\x81", "X"}));
  EXPECT_EQ(split(" \xcc\x81!"), (Words{" \xcc\x81", "!"}));
}

TEST(Pretokenize, PatternsAreFoundByTheirExpressions) {
  for (const auto pattern : {SplitPattern::Gpt2, SplitPattern::Llama3, SplitPattern::Qwen2,
                             SplitPattern::DeepSeek3, SplitPattern::O200k}) {
    EXPECT_EQ(find_split_pattern(split_regexes(pattern), "t.json"), pattern);
    EXPECT_EQ(split_pattern(name_of(pattern)), pattern);
  }
  // DeepSeek's file contains literal line ends where others write \r\n.
  Words regexes = split_regexes(SplitPattern::DeepSeek3);
  for (size_t at; (at = regexes[2].find("\\r\\n")) != std::string::npos;) {
    regexes[2].replace(at, 4, "\r\n");
  }
  EXPECT_EQ(find_split_pattern(regexes, "t.json"), SplitPattern::DeepSeek3);
  expect_user_error(ExitCode::InputFile,
                    "t.json: split pattern \"\\w+\" is unknown; Weft has those of GPT-2, Llama 3, "
                    "Qwen 2, DeepSeek 3 and GPT-4o",
                    [] { find_split_pattern(Words{"\\w+"}, "t.json"); });
  const std::string gpt2 = split_regexes(SplitPattern::Gpt2).front();
  expect_user_error(ExitCode::InputFile,
                    "t.json: 2 split patterns in a row, expected one, or the three of DeepSeek 3",
                    [&] {
                      find_split_pattern(Words{gpt2, gpt2}, "t.json");
                    });
  expect_user_error(
      ExitCode::Config,
      "split pattern \"gpt5\" is unknown; use one of gpt2, llama3, qwen2, deepseek3, o200k",
      [] { split_pattern("gpt5"); });
}

// The words of the parts are the words of the complete text, for every pattern and every certain
// end.
TEST(Pretokenize, CertainEndsSplitNoWord) {
  const std::string text =
      "It's 12 (foo),  bar.\n\nX 'S a\xe4\xb8\x80\xe3\x80\x82 \xe3\x82\xa2\xe3\x83\xbb z\xcc\x81 - "
      "9;\t"
      "end' \xc2\xa0q!\r\n 3's";
  int64_t places = 0;
  for (size_t at = 1; at < text.size(); ++at) {
    if (!is_certain_word_end(text, at)) continue;
    ++places;
    for (const auto pattern :
         {SplitPattern::Gpt2, SplitPattern::Llama3, SplitPattern::Qwen2, SplitPattern::DeepSeek3}) {
      Words parts = words(pattern, text.substr(0, at));
      for (const std::string& word : words(pattern, text.substr(at))) parts.push_back(word);
      EXPECT_EQ(parts, words(pattern, text)) << name_of(pattern) << " at " << at;
    }
  }
  EXPECT_GE(places, 8);
  EXPECT_FALSE(is_certain_word_end("a", 0));
  EXPECT_FALSE(is_certain_word_end("a\xf0", 1));  // truncated in the middle of a character
}

}  // namespace
}  // namespace weft

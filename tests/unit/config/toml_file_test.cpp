#include "config/toml_file.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

std::string error_of(const std::string& toml) {
  return user_error_of([&] { read_toml(toml, "a.toml"); });
}

std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

TEST(TomlFile, FlattensTablesInFileOrder) {
  const std::vector<Entry> entries = read_toml("[b]\ny = 1\n[a]\nx.z = \"t\"\n", "a.toml");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].key, "b.y");
  EXPECT_EQ(entries[0].subject, "a.toml:2: b.y = 1");
  EXPECT_EQ(entries[1].key, "a.x.z");
  EXPECT_EQ(entries[1].found, "a string");
}

TEST(TomlFile, ListsThatAreNotTextsHaveNoValue) {
  const std::vector<Entry> entries = read_toml("a = [1, 2]\nb = []\nc = 2020-01-01\n", "a.toml");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(entries[0].value));
  EXPECT_TRUE(std::holds_alternative<std::vector<std::string>>(entries[1].value));
  EXPECT_EQ(entries[2].found, "a date or time");
}

TEST(TomlFile, RefusesTextOverOneMebibyte) {
  const std::string text(kLargestTomlBytes + 1, '#');
  EXPECT_EQ(error_of(text), "a.toml: the file has 1048577 bytes, expected at most 1048576");
  EXPECT_EQ(error_of(text.substr(1)), "");
}

TEST(TomlFile, RefusesAFileOverOneMebibyte) {
  const TempFolder folder;
  const std::string text(kLargestTomlBytes + 1, '#');
  const std::string large = folder.write("large.toml", text);
  expect_user_error(ExitCode::Config,
                    large +
                        ": the file has more than 1048576 bytes, expected a config of at most "
                        "that size",
                    [&] { read_config_file(large); });
  EXPECT_EQ(read_config_file(folder.write("just.toml", text.substr(1))).size(), text.size() - 1);
}

TEST(TomlFile, ReadsAnEmptyFile) {
  const TempFolder folder;
  EXPECT_EQ(read_config_file(folder.write("empty.toml", "")), "");
}

TEST(TomlFile, RefusesDeepNesting) {
  EXPECT_NE(error_of("a = " + repeat("[", 40) + repeat("]", 40)), "");
  EXPECT_NE(error_of("a = " + repeat("[", 100000)), "");
  EXPECT_EQ(error_of("a = " + repeat("[", 20) + repeat("]", 20)), "");
}

TEST(TomlFile, RefusesDeepKeysWhereverTheyStand) {
  const std::string deep = "a" + repeat(".a", 200000);
  const std::string expected = ": a key has more than 32 parts, expected \"section.key\"";
  EXPECT_EQ(error_of(deep + " = 1"), "a.toml:1" + expected);
  EXPECT_EQ(error_of("\n[" + deep + "]"), "a.toml:2" + expected);
  EXPECT_EQ(error_of("x = {" + deep + " = 1}"), "a.toml:1" + expected);
  EXPECT_EQ(error_of("x = \"\"\"\n\\\"\"\"\"\n" + deep + " = 1"), "a.toml:3" + expected);
  EXPECT_EQ(error_of("\"#\"" + repeat(".\"a\"", 100) + " = 1"), "a.toml:1" + expected);
}

TEST(TomlFile, DotsInTextAndCommentsAreNotKeys) {
  const std::string dots(100, '.');
  EXPECT_EQ(error_of("a = \"" + dots + "\" # " + dots + "\nb = '" + dots + "'\nc = '''" + dots +
                     "\n" + dots + "'''\n"),
            "");
}

TEST(TomlFile, TextMayHoldAnyCharacter) {
  const std::vector<Entry> entries = read_toml(
      "a = \"\xc3\xb6\"\nb = \"\"\"\\\n  x\xc3\xb6\"\"\"\"\"\nc = '\xc3\xb6' # \xc3\xb6\n",
      "a.toml");
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(std::get<std::string>(entries[0].value), "\xc3\xb6");
  EXPECT_EQ(std::get<std::string>(entries[1].value), "x\xc3\xb6\"\"");
  EXPECT_EQ(entries[2].subject,
            "a.toml:4: c = '?"
            "?'");
}

TEST(TomlFile, CharactersOutsideAsciiNeedQuotesEvenAfterLongQuotes) {
  EXPECT_NE(error_of("a = \"\"\"x\"\"\"\" \xd2\x9e\n"), "");
}

TEST(TomlFile, LongValuesAreShortenedInMessages) {
  const std::vector<Entry> entries = read_toml("a = \"" + repeat("x", 1000) + "\"", "a.toml");
  EXPECT_LT(entries[0].subject.size(), 100u);
}

}  // namespace
}  // namespace weft

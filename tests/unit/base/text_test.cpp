// Text helpers: exact output, and the limits of the units.
#include "base/text.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/one_of.h"

namespace weft {
namespace {

using Parts = std::vector<std::string>;

TEST(Text, CatConcatenatesStreamForms) {
  EXPECT_EQ(cat("a", 1, 'c', 2.5), "a1c2.5");
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,b,,c,", ','), (Parts{"a", "b", "", "c", ""}));
  EXPECT_EQ(split("", ','), (Parts{""}));
}

TEST(Text, JoinIsTheInverseOfSplit) {
  EXPECT_EQ(join({"a", "", "c"}, ", "), "a, , c");
  EXPECT_EQ(join({}, ","), "");
  EXPECT_EQ(one_of({"a"}), "a");
  EXPECT_EQ(one_of({"a", "b"}), "a or b");
  EXPECT_EQ(one_of({"a", "b", "c"}), "a, b or c");
}

TEST(Text, TrimRemovesWhiteSpaceAtBothEnds) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

TEST(Text, ParseIntTakesTheFullTextOrNothing) {
  EXPECT_EQ(parse_int("-12"), -12);
  EXPECT_EQ(parse_int("9223372036854775807"), std::numeric_limits<int64_t>::max());
  for (const char* bad : {"", "1x", " 1", "9223372036854775808", "1.0", "+1", "0x10"}) {
    EXPECT_FALSE(parse_int(bad)) << bad;
  }
}

TEST(Text, ParseDoubleTakesTheFullTextOrNothing) {
  EXPECT_EQ(parse_double("1e-3"), 1e-3);
  EXPECT_EQ(parse_double("-0.5"), -0.5);
  for (const char* bad : {"", "1.0f", "1e999", " 1", "one"}) EXPECT_FALSE(parse_double(bad)) << bad;
}

TEST(Text, FormatDoubleIsShortAndReadsBack) {
  EXPECT_EQ(format_double(0.1), "0.1");
  EXPECT_EQ(format_double(1e-5), "1e-05");
  EXPECT_EQ(format_double(3.0), "3");
  for (const double value : {1.0 / 3.0, 6.02214076e23, 5e-324, -0.0}) {
    EXPECT_EQ(parse_double(format_double(value)), value);
  }
}

TEST(Text, HumanBytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(1024.0 * 1024 - 1), "1 MiB");
  EXPECT_EQ(human_bytes(40.96 * 1024 * 1024 * 1024), "40.96 GiB");
}

TEST(Text, HumanCount) {
  EXPECT_EQ(human_count(950), "950");
  EXPECT_EQ(human_count(999.6), "1 k");
  EXPECT_EQ(human_count(12345), "12.3 k");
  EXPECT_EQ(human_count(1.24e9), "1.24 G");
  EXPECT_EQ(human_count(124.4e6), "124 M");
}

TEST(Text, HumanDuration) {
  EXPECT_EQ(human_duration(4.2), "4.2 s");
  EXPECT_EQ(human_duration(59.97), "1 min 00 s");
  EXPECT_EQ(human_duration(185), "3 min 05 s");
  EXPECT_EQ(human_duration(3599.6), "1 h 00 min");
  EXPECT_EQ(human_duration(7800), "2 h 10 min");
  EXPECT_EQ(human_duration(std::numeric_limits<double>::quiet_NaN()), "unknown");
  EXPECT_EQ(human_duration(-1), "unknown");
}

TEST(Text, Hex64HasSixteenDigits) {
  EXPECT_EQ(hex64(0xbeef), "000000000000beef");
}

TEST(Text, InQuotesIsShortAndPrintable) {
  EXPECT_EQ(in_quotes("a b"), "\"a b\"");
  EXPECT_EQ(in_quotes("\x1b[2J\n"), "\"?[2J?\"");
  EXPECT_EQ(in_quotes(std::string(61, 'k')), cat('"', std::string(60, 'k'), "...\""));
}

TEST(Text, ShortenedDoesNotSplitCharacters) {
  EXPECT_EQ(shortened(std::string(60, 'k')), std::string(60, 'k'));
  EXPECT_EQ(shortened(std::string(60000, 'k')), cat(std::string(60, 'k'), "..."));
  EXPECT_EQ(shortened("abcdef", 4), "abcd...");
  EXPECT_EQ(shortened("ab\u00f6\u00f6", 3), "ab...");
  EXPECT_EQ(shortened("ab\u00f6\u00f6", 4), "ab\u00f6...");
  EXPECT_EQ(shortened(std::string(9, '\x80'), 6), cat(std::string(3, '\x80'), "..."));
}

TEST(Text, NearestFindsTypingSlipsOnly) {
  const Parts names = {"n_layers", "n_heads", "dropout"};
  EXPECT_EQ(nearest("n_layer", names), "n_layers");
  EXPECT_EQ(nearest("drpoout", names), "dropout");
  EXPECT_EQ(nearest("n_haeds", names), "n_heads");
  EXPECT_FALSE(nearest("vocab_size", names));
  EXPECT_FALSE(nearest("x", {}));
}

}  // namespace
}  // namespace weft

// UTF-8: every code point round-trips; every class of invalid bytes is rejected.
#include "data/utf8.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t value = 0; value <= kMaxCodePoint; ++value) {
    if (!is_code_point(value)) continue;
    std::string text;
    append_utf8(text, value);
    size_t at = 0;
    ASSERT_EQ(next_code_point(text, at), value);
    ASSERT_EQ(at, text.size());
  }
}

TEST(Utf8, InvalidBytesAreRefusedAndNotSkipped) {
  for (const std::string_view bad :
       {"\x80", "\xbf", "\xc3", "\xc3\x28", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xe2\x82",
        "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80",
        "\xff", "\xf0\x9f\x98"}) {
    size_t at = 0;
    EXPECT_FALSE(next_code_point(bad, at));
    EXPECT_EQ(at, 0u);
  }
}

}  // namespace
}  // namespace weft

// Form C: composition, reordering, Hangul, and characters that must not compose.
#include "data/normalize.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Normalize, Composes) {
  EXPECT_EQ(normalize_nfc("plain \xc3\xa9"), "plain \xc3\xa9");
  EXPECT_EQ(normalize_nfc("e\xcc\x81"), "\xc3\xa9");
  // o, horn, dot below: the dot sorts first, and both compose.
  EXPECT_EQ(normalize_nfc("o\xcc\x9b\xcc\xa3"), "\xe1\xbb\xa3");
  EXPECT_EQ(normalize_nfc("o\xcc\xa3\xcc\x9b"), "\xe1\xbb\xa3");
}

TEST(Normalize, KeepsWhatDoesNotCompose) {
  EXPECT_EQ(normalize_nfc("x\xcc\x81"), "x\xcc\x81");
  EXPECT_EQ(normalize_nfc("\xcc\x81"
                          "e"),
            "\xcc\x81"
            "e");
  // A mark of the same class in between blocks: a, ring above, acute composes only the ring.
  EXPECT_EQ(normalize_nfc("e\xcc\x8a\xcc\x81"), "e\xcc\x8a\xcc\x81");
}

TEST(Normalize, ReplacesSingletonsAndExcluded) {
  EXPECT_EQ(normalize_nfc("\xe2\x84\xab"), "\xc3\x85");                  // angstrom sign
  EXPECT_EQ(normalize_nfc("\xe0\xa5\x98"), "\xe0\xa4\x95\xe0\xa4\xbc");  // Devanagari qa
}

TEST(Normalize, Hangul) {
  EXPECT_EQ(normalize_nfc("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"), "\xed\x95\x9c");
  EXPECT_EQ(normalize_nfc("\xed\x95\x98\xe1\x86\xab"), "\xed\x95\x9c");
  EXPECT_EQ(normalize_nfc("\xed\x95\x9c"), "\xed\x95\x9c");
}

}  // namespace
}  // namespace weft

// FNV-1a against its published values.
#include "base/hash.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Hash, PublishedValues) {
  EXPECT_EQ(hash_text(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_text("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_text("foobar"), 0x85944171f73967e8u);
}

TEST(Hash, StreamingEqualsOneCall) {
  Hasher hasher;
  hasher.add("foo");
  hasher.add("bar");
  EXPECT_EQ(hasher.value(), hash_text("foobar"));
}

TEST(Hash, FieldsDoNotRunTogether) {
  Hasher first, second;
  for (const char* field : {"ab", "c"}) first.add_field(field);
  for (const char* field : {"a", "bc"}) second.add_field(field);
  EXPECT_NE(first.value(), second.value());
}

TEST(Hash, NumbersAreEightBytesLowestFirst) {
  Hasher hasher;
  hasher.add(uint64_t{0x6867666564636261});
  EXPECT_EQ(hasher.value(), hash_text("abcdefgh"));
}

}  // namespace
}  // namespace weft

// Philox against the published vectors, the layout of keys and counters, and the distributions.
#include "base/philox.h"

#include <gtest/gtest.h>

#include <set>

#include "support/random_normal.h"

namespace weft {
namespace {

void expect_words(PhiloxBlock block, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  EXPECT_EQ(block.word[0], a);
  EXPECT_EQ(block.word[1], b);
  EXPECT_EQ(block.word[2], c);
  EXPECT_EQ(block.word[3], d);
}

TEST(Philox, PublishedVectors) {
  expect_words(philox4x32_10({{0, 0, 0, 0}}, {{0, 0}}),  //
               0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect_words(philox4x32_10({{~0u, ~0u, ~0u, ~0u}}, {{~0u, ~0u}}),  //
               0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect_words(
      philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {{0xa4093822, 0x299f31d0}}),
      0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Philox, ElementIsAWordOfItsBlock) {
  const PhiloxKey key = random_key(7, 11);
  const uint64_t step = (uint64_t{3} << 32) | 5;
  const uint64_t block = (uint64_t{9} << 32) | 2;
  const PhiloxBlock direct = philox4x32_10({{2, 9, 5, 3}}, key);
  for (uint64_t lane = 0; lane < 4; ++lane) {
    EXPECT_EQ(random_bits(key, step, 4 * block + lane), direct.word[lane]);
  }
}

TEST(Philox, SeedStreamAndStepAllMatter) {
  std::set<uint32_t> seen;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (uint64_t stream = 0; stream < 4; ++stream) {
      for (uint64_t step = 0; step < 4; ++step) {
        seen.insert(random_bits(random_key(seed, stream), step, 0));
      }
    }
  }
  EXPECT_EQ(seen.size(), 64u);
}

TEST(Philox, UnitIntervalIncludesZeroAndNotOne) {
  EXPECT_EQ(unit_from_bits(0), 0.0f);
  EXPECT_EQ(unit_from_bits(~0u), 1.0f - 0x1p-24f);
}

TEST(Philox, NormalHasTheMomentsOfANormal) {
  const PhiloxKey key = random_key(1, 2);
  constexpr int kCount = 400000;
  double sum = 0, squares = 0, fourth = 0, neighbours = 0, before = 0;
  for (int i = 0; i < kCount; ++i) {
    const double z = random_normal(key, 0, static_cast<uint64_t>(i));
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    neighbours += z * before;
    before = z;
  }
  // Five standard errors of each mean: 1, sqrt(2), sqrt(96) and 1 over sqrt(count).
  const double unit = 5.0 / std::sqrt(kCount);
  EXPECT_NEAR(sum / kCount, 0.0, unit);
  EXPECT_NEAR(squares / kCount, 1.0, 1.42 * unit);
  EXPECT_NEAR(fourth / kCount, 3.0, 9.8 * unit);
  EXPECT_NEAR(neighbours / kCount, 0.0, unit);
}

TEST(Philox, RandomBelowCoversItsRangeEvenly) {
  const PhiloxKey key = random_key(1, 3);
  int counts[10] = {};
  for (uint64_t i = 0; i < 100000; ++i) ++counts[random_below(key, 4, i, 10)];
  // Five standard deviations of a binomial count: 5 * sqrt(100000 * 0.1 * 0.9).
  for (const int count : counts) EXPECT_NEAR(count, 10000, 475);
  EXPECT_EQ(random_below(key, 0, 0, 1), 0u);
}

TEST(Philox, IsUsableAtCompileTime) {
  static_assert(philox4x32_10({{0, 0, 0, 0}}, {{0, 0}}).word[0] == 0x6627e8d5);
  static_assert(random_unit(random_key(0, 0), 0, 0) < 1.0f);
}

}  // namespace
}  // namespace weft

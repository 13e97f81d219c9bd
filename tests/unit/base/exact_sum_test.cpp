#include "base/exact_sum.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace weft {
namespace {

using Words = std::array<int64_t, kExactSumWords>;

void add(Words& words, float value) {
  const ExactTerm term = exact_term(value);
  words.at(static_cast<size_t>(term.word)) += term.low;
  words.at(static_cast<size_t>(term.word) + 1) += term.high;
}

TEST(ExactSum, OneValueComesBack) {
  using Limits = std::numeric_limits<float>;
  for (float value : {0.0f, Limits::denorm_min(), 0x1.8p-140f, Limits::min(), 0x1.fffffep-1f, 1.0f,
                      3.14159f, 0x1p31f, 0x1.abcdeep32f, 1e30f, Limits::max()}) {
    Words words = {};
    add(words, value);
    EXPECT_EQ(exact_total(words.data()), static_cast<double>(value));
  }
}

TEST(ExactSum, CarriesAreResolved) {
  Words words = {};
  for (int i = 0; i < 3000; ++i) add(words, 0x1.fffffep127f);
  EXPECT_EQ(exact_total(words.data()), 3000 * static_cast<double>(0x1.fffffep127f));
  Words full = {};
  full[0] = 0x7fffffffffffffff;
  full[1] = 1;
  EXPECT_EQ(exact_total(full.data()), std::ldexp(0x1p63 + 0x1p32, kExactSumExponent));
}

TEST(ExactSum, ValuesThatAreNotFiniteGiveNaN) {
  for (float value : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    Words words = {};
    add(words, 1);
    add(words, value);
    EXPECT_TRUE(std::isnan(exact_total(words.data())));
  }
}

}  // namespace
}  // namespace weft

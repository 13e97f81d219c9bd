#include "base/loss_scale.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr LossScaleRule kRule{.growth = 4, .backoff = 0.25, .interval = 3};

void expect_next(LossScale now, bool finite, LossScale expected) {
  const LossScale found = next_loss_scale(now, finite, kRule);
  EXPECT_EQ(found.scale, expected.scale);
  EXPECT_EQ(found.good, expected.good);
}

TEST(LossScale, GrowsAfterGoodStepsInARow) {
  expect_next({64, 0}, true, {64, 1});
  expect_next({64, 1}, true, {64, 2});
  expect_next({64, 2}, true, {256, 0});
}

TEST(LossScale, ShrinksAtOnceAndCountsAnew) {
  expect_next({64, 2}, false, {16, 0});
}

TEST(LossScale, StaysWithinItsBounds) {
  expect_next({2, 0}, false, {1, 0});
  expect_next({1, 0}, false, {1, 0});
  expect_next({0x1p63F, 2}, true, {0x1p64F, 0});
  expect_next({0x1p64F, 2}, true, {0x1p64F, 0});
}

}  // namespace
}  // namespace weft

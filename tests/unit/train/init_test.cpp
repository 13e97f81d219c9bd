#include "train/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/hash.h"
#include "support/random_normal.h"

namespace weft {
namespace {

ParamInfo normal(std::string name, Shape shape, double std) {
  return {std::move(name), std::move(shape), {}, Init::Normal, std, {}};
}

std::vector<float> values(const ParamInfo& param, uint64_t seed) {
  std::vector<float> all(static_cast<size_t>(count(param.shape)));
  init_param(param, seed, 0, all);
  return all;
}

TEST(Init, AnyRangeGivesTheSameElements) {
  const ParamInfo param = normal("w", {37, 5}, 0.02);
  const std::vector<float> all = values(param, 7);
  for (int64_t first : {0, 1, 2, 3, 50, 184}) {
    std::vector<float> part(static_cast<size_t>(std::min<int64_t>(185 - first, 11)));
    init_param(param, 7, first, part);
    for (size_t i = 0; i < part.size(); ++i) {
      EXPECT_EQ(part[i], all[static_cast<size_t>(first) + i]);
    }
  }
}

TEST(Init, IsTheNormalOfItsElement) {
  const std::vector<float> all = values(normal("w", {1001}, 0.5), 7);
  const PhiloxKey key = random_key(7, hash_text("w.init"));
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i], static_cast<float>(0.5 * random_normal(key, 0, i)));
  }
}

TEST(Init, MeanAndDeviationAreAsRequested) {
  constexpr int64_t kCount = 1 << 20;
  const std::vector<float> all = values(normal("w", {kCount}, 0.02), 1337);
  double sum = 0;
  double squares = 0;
  for (const float x : all) {
    sum += x;
    squares += double{x} * x;
  }
  // Five standard errors: 0.02 / sqrt(n) for the mean, 0.02 / sqrt(2 n) for the deviation.
  EXPECT_NEAR(sum / kCount, 0, 5 * 0.02 / 1024);
  EXPECT_NEAR(std::sqrt(squares / kCount), 0.02, 5 * 0.02 / 1448);
}

TEST(Init, DependsOnSeedAndName) {
  const std::vector<float> base = values(normal("a", {64}, 1), 1);
  EXPECT_EQ(values(normal("a", {8, 8}, 1), 1), base);
  EXPECT_NE(values(normal("a", {64}, 1), 2), base);
  EXPECT_NE(values(normal("b", {64}, 1), 1), base);
}

TEST(Init, ConstantsAndBounds) {
  ParamInfo param = {"norm.weight", {3}, {}, Init::Ones, 0, {}};
  EXPECT_EQ(values(param, 1), (std::vector<float>{1, 1, 1}));
  param.init = Init::Zeros;
  EXPECT_EQ(values(param, 1), (std::vector<float>{0, 0, 0}));
  std::vector<float> two(2);
  EXPECT_THROW(init_param(param, 1, 2, two), InternalError);
}

}  // namespace
}  // namespace weft

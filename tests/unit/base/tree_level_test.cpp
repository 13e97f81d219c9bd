#include "base/tree_level.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft {
namespace {

TEST(TreeSplit, IsTheLargestPowerOfTwoBelow) {
  const std::vector<int64_t> expected = {1, 2, 2, 4, 4, 4, 4, 8};
  for (int64_t n = 2; n <= 9; ++n) EXPECT_EQ(tree_split(n), expected[static_cast<size_t>(n - 2)]);
}

// Sums micro-batches 0, 1, 2, ... through a chain of levels, as text.
std::string sum_of(int32_t micro_batches, const std::vector<int64_t>& levels) {
  std::vector<std::string> sums(levels.size());
  for (int32_t micro = 0; micro < micro_batches; ++micro) {
    std::string value = std::to_string(micro);
    for (size_t i = 0; i < levels.size(); ++i) {
      const AccumulateAction action = accumulate_action(levels[i], micro);
      if (action == AccumulateAction::Set) sums[i] = value;
      if (action == AccumulateAction::Add) sums[i] = "(" + sums[i] + "+" + value + ")";
      value = sums[i];
    }
  }
  return sums.back();
}

TEST(TreeLevel, LevelsInAChainMakeABalancedTree) {
  EXPECT_EQ(sum_of(2, {0}), "(0+1)");
  EXPECT_EQ(sum_of(4, {0, 1}), "((0+1)+(2+3))");
  EXPECT_EQ(sum_of(8, {0, 1, 2}), "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

TEST(TreeLevel, WithoutALevelSumsRun) {
  EXPECT_EQ(sum_of(4, {-1}), "(((0+1)+2)+3)");
}

TEST(TreeLevel, TheHighestLevelHasAPlaceInThe32Bits) {
  EXPECT_EQ(accumulate_action(kMaxTreeLevels - 1, 0x3fffffff), AccumulateAction::Set);
  EXPECT_EQ(accumulate_action(kMaxTreeLevels - 1, 0x7fffffff), AccumulateAction::Add);
  EXPECT_EQ(accumulate_action(kMaxTreeLevels - 1, 0x7ffffffe), AccumulateAction::Keep);
}

}  // namespace
}  // namespace weft

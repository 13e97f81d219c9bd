// Plans, beyond the golden tests of the pass.
#include "passes/bucket_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace weft {
namespace {

using Groups = std::vector<std::vector<size_t>>;

std::vector<BucketItem> items(const std::vector<std::string>& names, int64_t elements = 10) {
  std::vector<BucketItem> list;
  for (const auto& name : names) list.push_back({name, elements});
  return list;
}

TEST(BucketPlan, GivenBucketsHoldEveryParameter) {
  const auto list = items({"a", "b", "c"});
  EXPECT_EQ(plan_as_given(list, {{"a", "b"}, {"c"}}).groups, (Groups{{0, 1}, {2}}));
  EXPECT_THROW(plan_as_given(list, {{"a", "b"}}), InternalError);
  EXPECT_THROW(plan_as_given(list, {{"a", "b"}, {"c"}, {"d"}}), InternalError);
}

TEST(PlanByBlock, WithoutBlocksIsOneBucket) {
  EXPECT_EQ(plan_by_block(items({"a.w", "b.w"})).groups, (Groups{{0, 1}}));
}

TEST(PlanByBlock, WhatFollowsTheFirstBlockIsAfterAllBlocks) {
  const auto list = items({"tok.w", "layers.0.w", "between.w", "layers.1.w", "output.w"});
  EXPECT_EQ(plan_by_block(list).groups, (Groups{{0}, {1}, {2, 4}, {3}}));
}

// Norm weights between weights that tp shards.
TEST(PlanByBlock, SmallParametersOfAnotherKindAreSharedByBlocks) {
  std::vector<BucketItem> list = {{"tok.w", 100, 0}};
  for (const std::string block : {"layers.0", "layers.1", "layers.2"}) {
    list.push_back({block + ".norm", 2, 1});
    list.push_back({block + ".w", 100, 0});
  }
  list.push_back({"norm.w", 1, 1});
  list.push_back({"output.w", 100, 0});
  EXPECT_EQ(plan_by_block(list).groups, (Groups{{0}, {1, 3, 5, 7}, {2}, {4}, {6}, {8}}));
}

TEST(PlanByBlock, LargeParametersOfAnotherKindAreNot) {
  constexpr int64_t kLarge = 1 << 19;
  std::vector<BucketItem> list;
  for (const std::string block : {"layers.0", "layers.1", "layers.2"}) {
    list.push_back({block + ".wqkv", kLarge - 1, 1});
    list.push_back({block + ".bias", 1, 1});
    list.push_back({block + ".w", 3 * kLarge, 0});
  }
  EXPECT_EQ(plan_by_block(list).groups, (Groups{{0, 1, 3, 4}, {2}, {5}, {6, 7}, {8}}));
}

TEST(PlanBySize, ClosesAtTheLeastSizeAndKeepsTheRest) {
  const auto list = items({"a", "b", "c", "d", "e"});
  EXPECT_EQ(plan_by_size(list, 1).groups, (Groups{{0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(plan_by_size(list, 20).groups, (Groups{{0, 1}, {2, 3, 4}}));
  EXPECT_EQ(plan_by_size(list, 1000).groups, (Groups{{0, 1, 2, 3, 4}}));
  EXPECT_EQ(plan_by_size({}, 5).groups, Groups{});
}

TEST(PlanByHand, MergesMatchesOfTheSameWildcards) {
  Config config;
  config.compile.buckets = {"layers.*.a+layers.*.c", "layers.*.b"};
  const auto list = items({"layers.0.a", "layers.0.b", "layers.0.c", "layers.1.a", "layers.1.b"});
  const BucketPlan plan = plan_by_hand(list, config);
  EXPECT_EQ(plan.groups, (Groups{{0, 2}, {1}, {3}, {4}}));
  EXPECT_EQ(plan.note, "");
}

TEST(PlanByHand, SaysThatSeveralEntriesMatch) {
  Config config;
  config.compile.buckets = {"layers.0.a", "layers.*"};
  const BucketPlan plan = plan_by_hand(items({"layers.0.a", "layers.0.b"}), config);
  EXPECT_EQ(plan.groups, (Groups{{0}, {1}}));
  EXPECT_EQ(plan.note, "1 parameter matches several entries; the first one takes it");
}

}  // namespace
}  // namespace weft

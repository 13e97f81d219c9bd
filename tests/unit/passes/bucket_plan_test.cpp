// Patterns and plans, beyond the golden tests of the pass.
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

std::string path_of(std::string_view pattern, std::string_view name) {
  const auto match = match_module(pattern, name);
  return match ? match->path : "no";
}

TEST(BucketPlan, GivenBucketsHoldEveryParameter) {
  const auto list = items({"a", "b", "c"});
  EXPECT_EQ(plan_as_given(list, {{"a", "b"}, {"c"}}).groups, (Groups{{0, 1}, {2}}));
  EXPECT_THROW(plan_as_given(list, {{"a", "b"}}), InternalError);
  EXPECT_THROW(plan_as_given(list, {{"a", "b"}, {"c"}, {"d"}}), InternalError);
}

TEST(MatchModule, CoversTheBeginningOfANameBySegments) {
  EXPECT_EQ(path_of("norm", "norm.weight"), "norm");
  EXPECT_EQ(path_of("norm", "normal.weight"), "no");
  EXPECT_EQ(path_of("layers.1", "layers.10.w"), "no");
  EXPECT_EQ(path_of("layers.*", "layers.10.attention.w"), "layers.10");
  EXPECT_EQ(path_of("layers.*.att*n", "layers.3.attention.w"), "layers.3.attention");
  EXPECT_EQ(path_of("layers.?.w", "layers.10.w"), "no");
  EXPECT_EQ(path_of("a.b.c", "a.b"), "no");
}

TEST(MatchModule, RangesAreOfNumbers) {
  EXPECT_EQ(path_of("layers.[0-5]", "layers.5.w"), "layers.5");
  EXPECT_EQ(path_of("layers.[0-5]", "layers.6.w"), "no");
  EXPECT_EQ(path_of("layers.[2-11]", "layers.10.w"), "layers.10");
  EXPECT_EQ(path_of("layers.[2-11]", "layers.1.w"), "no");
  EXPECT_EQ(path_of("layers.[7]", "layers.7.w"), "layers.7");
  EXPECT_NO_THROW(check_module_pattern("layers.[1-2].w[3]", "key"));
  for (const char* bad : {"layers.[a-c]", "layers.[1-2", "layers.[2-1]", "layers.[1-2].["}) {
    EXPECT_THROW(check_module_pattern(bad, "key"), UserError) << bad;
  }
}

TEST(MatchModule, WildcardsTellMatchesApart) {
  EXPECT_EQ(match_module("layers.*.w?", "layers.3.w1.weight")->wildcard, "3.w1");
  EXPECT_EQ(match_module("norm", "norm.weight")->wildcard, "");
}

TEST(PlanByBlock, WithoutBlocksIsOneBucket) {
  EXPECT_EQ(plan_by_block(items({"a.w", "b.w"})).groups, (Groups{{0, 1}}));
}

TEST(PlanByBlock, WhatFollowsTheFirstBlockIsAfterAllBlocks) {
  const auto list = items({"tok.w", "layers.0.w", "between.w", "layers.1.w", "output.w"});
  EXPECT_EQ(plan_by_block(list).groups, (Groups{{0}, {1}, {2, 4}, {3}}));
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

// Values that share a buffer: gathered weights, weights that a gather overwrites, reduced
// gradients.
#include "plan/homes.h"

#include <gtest/gtest.h>

#include "graph/text.h"

namespace weft {
namespace {

constexpr std::string_view kGraph = R"(graph g(mesh dp_shard=2) {
  %b = bucket ["v","w"] : f32[3072] @F(dp_shard)
  %v.full = state "full.v" : bf16[1030]
  %w.full = state "full.w" : bf16[8]
  %v, %w = all_gather(%b; axis="dp_shard", types=["f32[1030]","f32[8]"]) : f32[1030], f32[8]
  %v.new, %w.new = all_gather(%b, %v.full, %w.full; axis="dp_shard", types=["bf16[1030]","bf16[8]"]) : bf16[1030], bf16[8]
  %d.v = input "d.v" : f32[1030] @P(dp_shard)
  %d.w = input "d.w" : f32[8] @P(dp_shard)
  %d.b = reduce_scatter(%d.v, %d.w; axis="dp_shard") : f32[3072] @F(dp_shard)
  return v=%v, w=%w, d.b=%d.b
}
)";

class HomesTest : public testing::Test {
 protected:
  const Value* value(std::string_view name) const { return graph_.find_value(name); }

  void expect_home(std::string_view name, std::string_view root, int64_t offset) const {
    EXPECT_EQ(homes_.at(value(name)).root, value(root)) << name;
    EXPECT_EQ(homes_.at(value(name)).offset, offset) << name;
  }

  Graph graph_ = parse_graph(kGraph);
  Homes homes_{graph_};
};

TEST_F(HomesTest, AGatherGivesPartsOfOneBuffer) {
  expect_home("v", "v", 0);
  expect_home("w", "v", 2048 * 4);
  // Two shards of two blocks each: full slots for both ranks.
  EXPECT_EQ(homes_.bytes(value("v"), 0), 4096 * 4);
}

TEST_F(HomesTest, WhatAGatherWritesOverLiesInItsBuffer) {
  expect_home("v.full", "v.full", 0);
  expect_home("v.new", "v.full", 0);
  expect_home("w.full", "v.full", 2048 * 2);
  expect_home("w.new", "v.full", 2048 * 2);
  EXPECT_EQ(homes_.bytes(value("v.full"), 0), 4096 * 2);
}

TEST_F(HomesTest, OperandsOfAReductionArePartsOfOneBuffer) {
  expect_home("d.v", "d.v", 0);
  expect_home("d.w", "d.v", 2048 * 4);
  EXPECT_EQ(homes_.bytes(value("d.v"), 0), 4096 * 4);  // full slots here too
}

TEST_F(HomesTest, AValueAloneMayBeShifted) {
  homes_.shift(value("d.b"), 512);
  expect_home("d.b", "d.b", 512);
}

}  // namespace
}  // namespace weft

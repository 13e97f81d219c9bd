// Values that share a buffer: gathered weights, weights that a gather overwrites, reduced
// gradients.
#include "plan/locations.h"

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

class LocationsTest : public testing::Test {
 protected:
  const Value* value(std::string_view name) const { return graph_.find_value(name); }

  void expect_location(std::string_view name, std::string_view root, int64_t offset) const {
    EXPECT_EQ(locations_.at(value(name)).root, value(root)) << name;
    EXPECT_EQ(locations_.at(value(name)).offset, offset) << name;
  }

  Graph graph_ = parse_graph(kGraph);
  Locations locations_{graph_};
};

TEST_F(LocationsTest, AGatherGivesPartsOfOneBuffer) {
  expect_location("v", "v", 0);
  expect_location("w", "v", 2048 * 4);
  // Two shards of two blocks each: full slots for both ranks.
  EXPECT_EQ(locations_.bytes(value("v"), 0), 4096 * 4);
}

TEST_F(LocationsTest, WhatAGatherWritesOverLiesInItsBuffer) {
  expect_location("v.full", "v.full", 0);
  expect_location("v.new", "v.full", 0);
  expect_location("w.full", "v.full", 2048 * 2);
  expect_location("w.new", "v.full", 2048 * 2);
  EXPECT_EQ(locations_.bytes(value("v.full"), 0), 4096 * 2);
}

TEST_F(LocationsTest, OperandsOfAReductionArePartsOfOneBuffer) {
  expect_location("d.v", "d.v", 0);
  expect_location("d.w", "d.v", 2048 * 4);
  EXPECT_EQ(locations_.bytes(value("d.v"), 0), 4096 * 4);  // full slots here too
}

TEST_F(LocationsTest, AValueAloneMayBeShifted) {
  locations_.shift(value("d.b"), 512);
  expect_location("d.b", "d.b", 512);
}

}  // namespace
}  // namespace weft

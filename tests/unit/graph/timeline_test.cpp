#include "graph/timeline.h"

#include <gtest/gtest.h>

#include "graph/text.h"

namespace weft {
namespace {

// gelu of 1024 f32 takes 8 s, a gather of 1024 f32 takes 4 s.
DeviceSpec round_numbers() {
  DeviceSpec device;
  device.memory_bandwidth = 1024;
  device.links = {{1, 2, 0, 1024, 0, 1024, 0, 1024}};
  return device;
}

StepEstimate estimate(const std::string& lines, int64_t micro_batches = 1) {
  const Graph graph = parse_graph("graph g(mesh dp_shard=2) {\n" + lines + "}\n");
  return estimate_step(graph, graph.nodes(), round_numbers(), micro_batches);
}

constexpr const char* kSources = R"(  %x = input "x" : f32[1024]
  %b = bucket ["w"] : f32[2048] @F(dp_shard)
)";

TEST(Timeline, APlainCollectiveHoldsUpComputation) {
  const StepEstimate step = estimate(std::string(kSources) + R"(  %y = gelu(%x) : f32[1024]
  %w, %v = all_gather(%b; axis="dp_shard", types=["f32[1024]", "f32[1024]"]) : f32[1024], f32[1024]
  %z = add(%y, %w) : f32[1024]
  return z=%z
)");
  EXPECT_EQ(step.time.compute_seconds, 8 + 12);
  EXPECT_EQ(step.time.collective_seconds, 8);
  EXPECT_EQ(step.time.exposed_seconds(), 8);
}

TEST(Timeline, AStartedCollectiveHidesBehindComputation) {
  const StepEstimate step = estimate(std::string(kSources) + R"(
  %f, %e = all_gather_start(%b; axis="dp_shard", types=["f32[1024]", "f32[1024]"]) : future<f32[1024]>, future<f32[1024]>
  %y = gelu(%x) : f32[1024]
  %w, %v = wait(%f, %e) : f32[1024], f32[1024]
  %z = add(%y, %w) : f32[1024]
  return z=%z
)");
  EXPECT_EQ(step.time.exposed_seconds(), 0);
  EXPECT_EQ(step.time.seconds, 20);
}

// A gather of 4 s and a reduction of 4 s are started together.
constexpr const char* kBothWays = R"(  %x = input "x" : f32[1024]
  %p = input "p" : f32[1024] @P(AXIS)
  %b = bucket ["w"] : f32[1024] @F(dp_shard)
  %f = all_gather_start(%b; axis="dp_shard", types=["f32[1024]"]) : future<f32[1024]>
  %r = all_reduce_start(%p; axis="AXIS") : future<f32[1024]>
  %w = wait(%f) : f32[1024]
  %s = wait(%r) : f32[1024]
  return w=%w, s=%s
)";

StepEstimate both_ways(const std::string& axis) {
  std::string text = kBothWays;
  for (size_t at = text.find("AXIS"); at != std::string::npos; at = text.find("AXIS")) {
    text.replace(at, 4, axis);
  }
  const Graph graph = parse_graph("graph g(mesh copies=2, dp_shard=2) {\n" + text + "}\n");
  return estimate_step(graph, graph.nodes(), round_numbers(), 1);
}

TEST(Timeline, CollectivesOfOneAxisShareItsLink) {
  EXPECT_EQ(both_ways("dp_shard").time.collective_seconds, 8);
  EXPECT_EQ(both_ways("dp_shard").time.seconds, 8);
  EXPECT_EQ(both_ways("copies").time.seconds, 4);
}

TEST(Timeline, ACollectiveOverAJointAxisUsesTheLinksOfAllItsAxes) {
  Clocks clocks;
  EXPECT_EQ(clocks.run({.stream = 1, .axis = "dp_shard", .seconds = 4}), 4);
  EXPECT_EQ(clocks.run({.stream = 2, .axis = "copies+dp_shard", .seconds = 2}), 6);
  EXPECT_EQ(clocks.run({.stream = 3, .axis = "copies", .seconds = 1}), 7);
  EXPECT_EQ(clocks.run({.stream = 1, .axis = "tp", .seconds = 1}), 5);
}

TEST(Timeline, AStepIsAllItsMicroBatches) {
  const std::string lines = R"(  %x = input "x" : f32[1024]
  %y = gelu(%x) : f32[1024]
  %n = gelu(%y) : f32[1024]  # opt
  %p = input "p" : f32[1024] @P(dp_shard)
  %r = all_reduce(%p; axis="dp_shard") : f32[1024]  # opt
  return y=%y, r=%r
)";
  EXPECT_EQ(estimate(lines, 1).time.seconds, 8 + 8 + 4);
  const PlanTime four = estimate(lines, 4).time;
  EXPECT_EQ(four.seconds, 3 * 8 + 20);
  EXPECT_EQ(four.compute_seconds, 3 * 8 + 16);
  EXPECT_EQ(four.collective_seconds, 4);
}

TEST(Timeline, GatheredTensorsLiveTogetherFromTheStart) {
  const StepEstimate step = estimate(std::string(kSources) + R"(
  %f, %e = all_gather_start(%b; axis="dp_shard", types=["f32[1024]", "f32[1024]"]) : future<f32[1024]>, future<f32[1024]>
  %y = gelu(%x) : f32[1024]
  %w, %v = wait(%f, %e) : f32[1024], f32[1024]
  %z = add(%y, %w) : f32[1024]
  %u = gelu(%z) : f32[1024]
  return u=%u
)");
  EXPECT_EQ(step.persistent_bytes, 4096 + 4096);
  EXPECT_EQ(step.peak_bytes, 4 * 4096);  // w, v, y and z
}

TEST(Timeline, WhatIsReducedLivesUntilTheWait) {
  const StepEstimate step = estimate(R"(  %x = input "x" : f32[1024] @P(dp_shard)
  %g = gelu(%x) : f32[1024] @P(dp_shard)
  %f = reduce_scatter_start(%g; axis="dp_shard") : future<f32[1024] @F(dp_shard)>
  %y = gelu(%x) : f32[1024]
  %s = wait(%f) : f32[1024] @F(dp_shard)
  return s=%s
)");
  EXPECT_EQ(step.peak_bytes, 4096 + 4096 + 4096);  // one block is not sharded further
}

}  // namespace
}  // namespace weft

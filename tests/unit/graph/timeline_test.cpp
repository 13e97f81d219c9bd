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

StepEstimate estimate(const std::string& lines) {
  const Graph graph = parse_graph("graph g(mesh dp_shard=2) {\n" + lines + "}\n");
  return estimate_step(graph, graph.nodes(), round_numbers());
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
  EXPECT_EQ(step.compute_seconds, 8 + 12);
  EXPECT_EQ(step.collective_seconds, 8);
  EXPECT_EQ(step.exposed_seconds(), 8);
}

TEST(Timeline, AStartedCollectiveHidesBesideComputation) {
  const StepEstimate step = estimate(std::string(kSources) + R"(
  %f, %e = all_gather_start(%b; axis="dp_shard", types=["f32[1024]", "f32[1024]"]) : future<f32[1024]>, future<f32[1024]>
  %y = gelu(%x) : f32[1024]
  %w, %v = wait(%f, %e) : f32[1024], f32[1024]
  %z = add(%y, %w) : f32[1024]
  return z=%z
)");
  EXPECT_EQ(step.exposed_seconds(), 0);
  EXPECT_EQ(step.seconds, 20);
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
  EXPECT_EQ(step.peak_bytes, 4096 + 4096 + 4096);  // one block is not cut further
}

}  // namespace
}  // namespace weft

// The number of buckets gathered ahead, limited by time and by memory.
#include "passes/overlap_schedule.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "graph/text.h"
#include "graph/timeline.h"

namespace weft {
namespace {

// Each layer has one gather (1024 f32) and one elementwise op on the gathered weight.
Graph layers(int count) {
  std::string text = "graph g(mesh dp_shard=2) {\n";
  for (int i = 0; i < count; ++i) {
    text += cat("  %s", i, " = bucket [\"layers.", i, ".w\"] : f32[1024] @F(dp_shard)\n");
    text += cat("  %w", i, " = all_gather(%s", i,
                "; axis=\"dp_shard\", types=[\"f32[1024]\"]) : f32[1024]  # layers.", i, " fwd\n");
    text += cat("  %y", i, " = gelu(%w", i, ") : f32[1024]  # layers.", i, " fwd\n");
  }
  return parse_graph(text + "  return\n}\n");
}

// An op takes 8 s, a gather `gather` s.
DeviceSpec device_with(double gather) {
  DeviceSpec device;
  device.memory_bandwidth = 1024;
  device.links = {{1, 2, gather - 1, 4096, 0, 4096, 0, 4096}};
  return device;
}

Schedule schedule(Graph& graph, const Config& config, const DeviceSpec& device) {
  split_collectives(graph);
  const PassContext context{.config = config, .device = device, .goal = Goal::Evaluate};
  return choose_schedule(graph, context);
}

int64_t automatic(double gather_seconds) {
  Graph graph = layers(6);
  Config config;
  config.compile.prefetch = -1;
  return schedule(graph, config, device_with(gather_seconds)).prefetch;
}

TEST(OverlapSchedule, AutomaticPrefetchHidesWhatItCan) {
  EXPECT_EQ(automatic(4), 1);   // one op hides a gather
  EXPECT_EQ(automatic(40), 1);  // bound by back-to-back gathers: no depth helps
}

TEST(OverlapSchedule, PrefetchGoesDownToWhatFits) {
  Config config;
  config.compile.prefetch = 3;
  DeviceSpec device = device_with(4);
  const int64_t sources = 6 * 4096;
  for (int64_t prefetch : {3, 2, 1, 0}) {
    // Gathered weights in use and ahead, and the result of the op.
    device.memory_bytes = sources + (prefetch + 2) * 4096;
    Graph graph = layers(6);
    const Schedule found = schedule(graph, config, device);
    EXPECT_EQ(found.prefetch, prefetch);
    EXPECT_EQ(found.held > 0, prefetch < 3);
  }
}

// A device that cannot hold even one layer at a time: memory below the peak is still used.
TEST(OverlapSchedule, WithoutRoomGathersHideWhereThePeakIsNot) {
  const std::string text = R"(graph g(mesh dp_shard=2) {
  %s0 = bucket ["layers.0.w"] : f32[1024] @F(dp_shard)
  %w0 = all_gather(%s0; axis="dp_shard", types=["f32[1024]"]) : f32[1024]  # layers.0 fwd
  %y0 = gelu(%w0) : f32[1024]  # layers.0 fwd
  %s1 = bucket ["layers.1.w"] : f32[1024] @F(dp_shard)
  %w1 = all_gather(%s1; axis="dp_shard", types=["f32[1024]"]) : f32[1024]  # layers.1 fwd
  %y1 = gelu(%w1) : f32[1024]  # layers.1 fwd
  %z1 = add(%y1, %w1) : f32[1024]  # layers.1 fwd
  %s2 = bucket ["layers.2.w"] : f32[1024] @F(dp_shard)
  %w2 = all_gather(%s2; axis="dp_shard", types=["f32[1024]"]) : f32[1024]  # layers.2 fwd
  %y2 = gelu(%w2) : f32[1024]  # layers.2 fwd
  return
}
)";
  DeviceSpec device = device_with(4);
  device.memory_bytes = 1;
  Graph graph = parse_graph(text);
  const int64_t before = memory_curve(graph, graph.nodes()).peak_bytes();
  const Schedule found = schedule(graph, Config(), device);
  EXPECT_EQ(found.prefetch, 1);  // w1 during y0
  EXPECT_EQ(found.held, 1);      // w2 would come on top of the three values that z1 needs
  EXPECT_EQ(memory_curve(graph, found.order).peak_bytes(), before);
}

TEST(OverlapSchedule, PrefetchIsAtMostTheNumberOfGathers) {
  Config config;
  config.compile.prefetch = 1000;
  Graph graph = layers(3);
  EXPECT_EQ(schedule(graph, config, device_with(4)).prefetch, 2);  // the last, before the first
}

}  // namespace
}  // namespace weft

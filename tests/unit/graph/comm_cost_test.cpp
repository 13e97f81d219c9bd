#include "graph/comm_cost.h"

#include <gtest/gtest.h>

#include "graph/ops/ops.h"
#include "graph/text.h"

namespace weft {
namespace {

// Round numbers: a gather takes one second plus one second per byte, an all_reduce twice that, a
// scatter three seconds plus one second per byte.
DeviceSpec slow_links() {
  DeviceSpec device;
  device.memory_bandwidth = 8;
  device.ranks_per_host = 4;
  device.links = {{1, 4, 1, 1, 3, 1, 2, 0.5}, {2, 1, 10, 1, 30, 1, 20, 0.5}};
  return device;
}

double seconds_of(const std::string& lines, const DeviceSpec& device = slow_links()) {
  const Graph graph =
      parse_graph("graph g(mesh dp_replicate=2, dp_shard=4) {\n" + lines + "\n  return\n}\n");
  return local_seconds(graph.nodes().back()->call(), graph.mesh(), device);
}

// Ranks that read each other's memory need not pack strided shards.
DeviceSpec one_memory() {
  DeviceSpec device = slow_links();
  device.ranks_share_memory = true;
  return device;
}

TEST(CommCost, AGatherCountsWhatItGivesInItsType) {
  EXPECT_EQ(seconds_of(R"(  %b = bucket ["w"] : f32[1024] @F(dp_shard)
  %w = all_gather(%b; axis="dp_shard", types=["bf16[8,8]"]) : bf16[8,8])"),
            1 + 2 * 64);
}

TEST(CommCost, AReduceScatterCountsWhatItTakes) {
  EXPECT_EQ(seconds_of(R"(  %g = input "g" : f32[8,8] @P(dp_replicate) @P(dp_shard)
  %s = reduce_scatter(%g; axis="dp_shard") : f32[1024] @P(dp_replicate) @F(dp_shard))"),
            3 + 4 * 64);
}

TEST(CommCost, AnAllReduceAcrossHostsCountsTheShardOfEachRank) {
  EXPECT_EQ(seconds_of(R"(  %s = input "s" : f32[8192] @P(dp_replicate) @F(dp_shard)
  %r = all_reduce(%s; axis="dp_replicate") : f32[8192] @F(dp_shard))"),
            20 + 4 * 2048 / 0.5);
}

TEST(CommCost, CollectivesAlongADimCountTheFullTensorOfARank) {
  EXPECT_EQ(seconds_of(R"(  %x = input "x" : f32[8,8] @S(0:dp_replicate) @S(1:dp_shard)
  %y = all_gather(%x; axis="dp_shard", dim=1) : f32[8,8] @S(0:dp_replicate))",
                       one_memory()),
            1 + 4 * 32);
  EXPECT_EQ(seconds_of(R"(  %x = input "x" : f32[8,8] @S(0:dp_replicate) @P(dp_shard)
  %y = reduce_scatter(%x; axis="dp_shard", dim=0) : f32[8,8] @S(0:dp_replicate) @S(0:dp_shard))"),
            3 + 4 * 32);
}

TEST(CommCost, MovesOfShardsCountWhatARankHas) {
  EXPECT_EQ(seconds_of(R"(  %x = input "x" : f32[8,8] @S(0:dp_shard)
  %y = all_to_all(%x; axis="dp_shard", from=0, to=1) : f32[8,8] @S(1:dp_shard))",
                       one_memory()),
            1 + 4 * 16);
  // A gather sends 3/4 of its bytes, a shift all of them.
  EXPECT_EQ(seconds_of(R"(  %x = input "x" : f32[8,6] @S(0:dp_shard)
  %y = shift_start(%x; axis="dp_shard") : future<f32[8,6] @S(0:dp_shard)>)"),
            1 + 4 * 12 * 4 / 3.0);
}

// Packed bytes are read and written at 8 bytes per second.
TEST(CommCost, ShardsAlongAnInnerDimArePackedIfRanksShareNoMemory) {
  const std::string inner = R"(  %x = input "x" : f32[8,8] @S(1:dp_shard)
  %y = all_gather(%x; axis="dp_shard", dim=1) : f32[8,8])";
  EXPECT_EQ(seconds_of(inner) - seconds_of(inner, one_memory()), 2 * 4 * 64 / 8);
  const std::string outermost = R"(  %x = input "x" : f32[8,8] @P(dp_shard)
  %y = reduce_scatter(%x; axis="dp_shard", dim=0) : f32[8,8] @S(0:dp_shard))";
  EXPECT_EQ(seconds_of(outermost), seconds_of(outermost, one_memory()));
  // What is sent is strided, what arrives is not.
  const std::string moved = R"(  %x = input "x" : f32[8,8] @S(0:dp_shard)
  %y = all_to_all(%x; axis="dp_shard", from=0, to=1) : f32[8,8] @S(1:dp_shard))";
  EXPECT_EQ(seconds_of(moved) - seconds_of(moved, one_memory()), 2 * 4 * 16 / 8);
}

TEST(CommCost, AJointAxisSpansTheHostsOfAllItsAxes) {
  const Mesh mesh{{{"a", 2}, {"b", 2}, {"c", 2}}};  // 4 ranks per host: a host is a value of a
  EXPECT_TRUE(on_one_host(mesh, "b+c", slow_links()));
  EXPECT_FALSE(on_one_host(mesh, "a+b", slow_links()));
  EXPECT_FALSE(on_one_host(mesh, "a+c", slow_links()));
  EXPECT_FALSE(on_one_host(mesh, "a+b+c", slow_links()));
}

TEST(CommCost, AnExpertAxisSpansTheHostsOfItsRanks) {
  const Mesh mesh = parse_mesh("dp_replicate=2, dp_shard=8; edp=2, ep=4");
  EXPECT_TRUE(on_one_host(mesh, "ep", slow_links()));
  EXPECT_FALSE(on_one_host(mesh, "edp", slow_links()));
  EXPECT_FALSE(on_one_host(mesh, "dp_replicate+ep", slow_links()));
  EXPECT_FALSE(on_one_host(mesh, "edp+ep", slow_links()));
}

TEST(CommCost, CollectivesWithoutDimAreFlat) {
  const Graph graph = parse_graph(R"(graph g(mesh dp=2) {
  %x = input "x" : f32[8] @S(0:dp)
  %p = input "p" : f32[8] @P(dp)
  %a = all_gather_start(%x; axis="dp", dim=0) : future<f32[8]>
  %b = reduce_scatter(%p; axis="dp", dim=0) : f32[8] @S(0:dp)
  %c = reduce_scatter(%p; axis="dp") : f32[1024] @F(dp)
  %d = all_gather(%c; axis="dp", types=["f32[8]"]) : f32[8]
  %e = gelu(%d) : f32[8]
  %f = all_reduce(%p; axis="dp") : f32[8]
  return
}
)");
  std::string flat;
  for (const auto& node : graph.order()) {
    EXPECT_EQ(is_flat_collective(*node), is_flat_collective(node->call()));
    if (is_flat_collective(*node)) flat += node->result()->name;
  }
  EXPECT_EQ(flat, "cdf");
}

TEST(CommCost, ComputationCountsThePartOfARank) {
  const double part = seconds_of(R"(  %x = input "x" : f32[8,4] @S(0:dp_shard)
  %y = gelu(%x) : f32[8,4] @S(0:dp_shard))");
  EXPECT_EQ(part, 2 * (8 / 4) * 4 * 4 / 8.0);  // read and written at 8 bytes per second
}

TEST(CommCost, AStartIsOfTheKindThatItStarts) {
  for (const OpDef* collective : {&kAllGather, &kReduceScatter, &kAllReduce, &kAllToAll, &kShift}) {
    const OpDef* start = start_of(*collective);
    ASSERT_NE(start, nullptr) << collective->name();
    EXPECT_EQ(start->name(), cat(collective->name(), "_start"));
    EXPECT_EQ(&collective_of(*start), collective);
    EXPECT_EQ(&collective_of(*collective), collective);
    EXPECT_TRUE(is_start(*start) && !is_start(*collective));
    EXPECT_EQ(start->collective, collective->collective);
    EXPECT_EQ(is_gather(*start), collective == &kAllGather);
    EXPECT_EQ(is_reduction(*start), collective == &kReduceScatter || collective == &kAllReduce);
    EXPECT_EQ(start_of(*start), nullptr);
  }
  EXPECT_FALSE(is_start(kWait) || is_gather(kWait) || is_reduction(kWait));
  EXPECT_EQ(start_of(kWait), nullptr);
  EXPECT_EQ(start_of(kMatmul), nullptr);
}

}  // namespace
}  // namespace weft

// The price of an edge: chunks pay where a transfer takes about as long as its matmul, and nowhere
// else.
#include <gtest/gtest.h>

#include "graph/text.h"
#include "passes/async_tp_edges.h"

namespace weft {
namespace {

// The matmul takes 8 s on device_with, each copy of a chunk next to nothing.
constexpr const char* kGather = R"(graph g(mesh tp=2) {
  %x = input "x" : f32[1,64,16] @S(1:tp)
  %w = param "w" : f32[16,32] @S(1:tp)
  %x.full = all_gather(%x; axis="tp", dim=1) : f32[1,64,16]
  %y = matmul(%x.full, %w) : f32[1,64,32] @S(2:tp)
  return y=%y
}
)";
constexpr const char* kScatter = R"(graph g(mesh tp=2) {
  %a = input "a" : f32[1,64,32] @S(2:tp)
  %w = param "w" : f32[32,16] @S(0:tp)
  %y = matmul(%a, %w) : f32[1,64,16] @P(tp)
  %y.shard = reduce_scatter(%y; axis="tp", dim=1) : f32[1,64,16] @S(1:tp)
  return y=%y.shard
}
)";
// The second matmul takes 8 s as well and does not read the result of the reduction.
constexpr const char* kHiddenScatter = R"(graph g(mesh tp=2) {
  %a = input "a" : f32[1,64,32] @S(2:tp)
  %w = param "w" : f32[32,16] @S(0:tp)
  %d = input "d" : f32[1,64,16]
  %y = matmul(%a, %w) : f32[1,64,16] @P(tp)
  %y.shard = reduce_scatter(%y; axis="tp", dim=1) : f32[1,64,16] @S(1:tp)
  %dw = matmul(%a, %d; ta=true) : f32[32,16] @S(0:tp)
  %z = gelu(%y.shard) : f32[1,64,16] @S(1:tp)
  return z=%z, dw=%dw
}
)";

// A transfer of all tokens takes `latency` and `transfer` seconds.
DeviceSpec device_with(double latency, double transfer) {
  DeviceSpec device;
  device.matmul_flops_f32 = 4096;
  device.matmul_efficiency = 1;
  device.vector_flops = 1e12;
  device.memory_bandwidth = 1e12;
  device.launch_latency = 0;
  const double bandwidth = 4096 / transfer;
  device.links = {{1, 2, latency, bandwidth, latency, bandwidth, latency, bandwidth}};
  return device;
}

int64_t chunks_of(const char* text, const DeviceSpec& device) {
  const Graph graph = parse_graph(text);
  const std::vector<AsyncEdge> edges = find_async_edges(graph);
  return edges.size() == 1 ? cheapest_chunks(graph, edges, device).front() : -1;
}

TEST(AsyncTp, ChunksPayWhereATransferTakesAsLongAsItsMatmul) {
  for (const char* graph : {kGather, kScatter}) {
    EXPECT_EQ(chunks_of(graph, device_with(0, 8)), 8);
    EXPECT_EQ(chunks_of(graph, device_with(0, 2)), 4);  // hides 1.5 of 2 s; 8 chunks 0.25 s more
  }
}

TEST(AsyncTp, AFastLinkNeedsNone) {
  for (const char* graph : {kGather, kScatter}) {
    EXPECT_EQ(chunks_of(graph, device_with(0, 0.25)), 1);
  }
}

// Every chunk pays the latency of a transfer.
TEST(AsyncTp, LatencyLimitsTheirNumber) {
  for (const char* graph : {kGather, kScatter}) {
    EXPECT_EQ(chunks_of(graph, device_with(1, 8)), 2);
    EXPECT_EQ(chunks_of(graph, device_with(8, 0.1)), 1);
  }
}

// Splitting and concatenating moves the chunks through memory.
TEST(AsyncTp, SlowMemoryLimitsTheirNumber) {
  DeviceSpec device = device_with(0, 8);
  device.memory_bandwidth = 1024;
  for (const char* graph : {kGather, kScatter}) EXPECT_EQ(chunks_of(graph, device), 1);
}

TEST(AsyncTp, AReductionThatIsHiddenAnywayStaysInOne) {
  EXPECT_EQ(chunks_of(kHiddenScatter, device_with(0, 8)), 1);
  EXPECT_GT(chunks_of(kHiddenScatter, device_with(0, 24)), 1);  // 16 s of it would show
}

// The chunks of a result and their concatenation take more than what is gathered and the result.
TEST(AsyncTp, ChunksNeedMemoryForTheirConcatenation) {
  const char* wide = R"(graph g(mesh tp=2) {
  %x = input "x" : f32[1,64,16] @S(1:tp)
  %w = param "w" : f32[16,64] @S(1:tp)
  %x.full = all_gather(%x; axis="tp", dim=1) : f32[1,64,16]
  %y = matmul(%x.full, %w) : f32[1,64,64] @S(2:tp)
  return y=%y
}
)";
  for (const int64_t memory_bytes : {0, 1}) {
    Graph graph = parse_graph(wide);
    DeviceSpec device = device_with(0, 8);
    device.name = "small";
    device.memory_bytes = memory_bytes;
    const Config config;
    PassContext context{.config = config, .device = device, .goal = Goal::Evaluate};
    EXPECT_EQ(async_tp.run(graph, context), memory_bytes == 0) << context.note;
    if (memory_bytes == 0) continue;
    EXPECT_EQ(context.note, "1 of 1 edges would gain from chunks, but not enough memory on small");
  }
}

}  // namespace
}  // namespace weft

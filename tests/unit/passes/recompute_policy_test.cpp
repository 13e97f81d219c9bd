// What the policies choose, beyond the golden tests of the pass.
#include "passes/recompute_policy.h"

#include <gtest/gtest.h>

#include "graph/text.h"

namespace weft {
namespace {

// Two equal blocks; the backward reads %u and %g of each, and %a, %b cross block boundaries.
constexpr std::string_view kBlocks = R"(graph g {
  %x = input "x" : f32[4,8]
  %w = param "w" : f32[8,8]
  %u0 = matmul(%x, %w) : f32[4,8]  # layers.0 fwd
  %g0 = gelu(%u0) : f32[4,8]  # layers.0 fwd
  %a = add(%x, %g0) : f32[4,8]  # layers.0 fwd
  %u1 = matmul(%a, %w) : f32[4,8]  # layers.1 fwd
  %g1 = gelu(%u1) : f32[4,8]  # layers.1 fwd
  %b = add(%a, %g1) : f32[4,8]  # layers.1 fwd
  %y = gelu(%b) : f32[4,8]  # norm fwd
  %r1 = add(%u1, %g1) : f32[4,8]  # layers.1 bwd
  %r0 = add(%u0, %g0) : f32[4,8]  # layers.0 bwd
  return y=%y, r1=%r1, r0=%r0
}
)";

std::vector<std::string> chosen(const Config& config, std::string_view text = kBlocks) {
  Graph graph = parse_graph(text);
  DeviceSpec device;
  device.memory_bandwidth = 1e9;
  device.matmul_flops_f32 = 1e9;
  device.matmul_flops_bf16 = 1e9;
  const PassContext context{.config = config, .device = device};
  const auto set = nodes_to_recompute(graph, context);
  std::vector<std::string> names;
  for (const auto& node : graph.order()) {
    if (set.contains(node.get())) names.push_back(node->result()->name);
  }
  return names;
}

Config with_budget(double budget) {
  Config config;
  config.activation_checkpoint.mode = RecomputeMode::MemoryBudget;
  config.activation_checkpoint.memory_budget = budget;
  return config;
}

using Names = std::vector<std::string>;

TEST(RecomputePolicy, FullTakesWhatStaysInsideItsBlock) {
  Config config;
  config.activation_checkpoint.mode = RecomputeMode::Full;
  EXPECT_EQ(chosen(config), (Names{"u0", "g0", "u1", "g1"}));
}

TEST(RecomputePolicy, ABudgetDropsCheapBytesFirstAndEarlierBlocksFirst) {
  EXPECT_EQ(chosen(with_budget(1.0)), Names{});
  EXPECT_EQ(chosen(with_budget(0.75)), (Names{"g0"}));
  EXPECT_EQ(chosen(with_budget(0.5)), (Names{"g0", "g1"}));
  EXPECT_EQ(chosen(with_budget(0.25)), (Names{"u0", "g0", "g1"}));
  EXPECT_EQ(chosen(with_budget(0.0)), (Names{"u0", "g0", "u1", "g1"}));
}

// On each of four ranks both values have 4 x 8 elements. The sharded gelu reads one operand, the
// replicated add two, so the gelu saves more bytes per second; in global shapes it takes four times
// as long and would be kept.
TEST(RecomputePolicy, ABudgetWeighsTheSecondsOfARankAgainstItsBytes) {
  constexpr std::string_view kSharded = R"(graph g(mesh dp_shard=4) {
  %x = input "x" : f32[16,8] @S(0:dp_shard)
  %w = param "w" : f32[4,8]
  %g = gelu(%x) : f32[16,8] @S(0:dp_shard)  # layers.0 fwd
  %a = add(%w, %w) : f32[4,8]  # layers.0 fwd
  %r = gelu(%g) : f32[16,8] @S(0:dp_shard)  # layers.0 bwd
  %s = gelu(%a) : f32[4,8]  # layers.0 bwd
  return r=%r, s=%s
}
)";
  EXPECT_EQ(chosen(with_budget(0.5), kSharded), (Names{"g"}));
}

TEST(RecomputePolicy, KeptBytesCountOnlyResultsThatTheBackwardReads) {
  Graph graph = parse_graph(kBlocks);
  EXPECT_EQ(kept_bytes(*graph.find_value("u0")->def, graph.mesh()), 4 * 8 * 4);
  EXPECT_EQ(kept_bytes(*graph.find_value("a")->def, graph.mesh()), 0);
}

}  // namespace
}  // namespace weft

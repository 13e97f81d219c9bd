// A mixture of experts on several meshes: what every rank computes, and all that moves between
// tokens and experts, forward and backward. The graphs are in tests/golden/experts.
#include <gtest/gtest.h>

#include "config/load.h"
#include "graph/text.h"
#include "passes/pass.h"
#include "support/golden.h"
#include "support/user_error.h"

namespace weft {
namespace {

constexpr const char* kBlock = R"(graph train {
  %tokens = input "tokens" [batch, sequence] : i32[4,16]
  %x = input "x" [batch, sequence, embed] : f32[4,16,32]
  %targets = input "targets" [batch, sequence] : i32[4,16]
  %count = input "count" : f32[]
  %ffn_norm.w = param "layers.0.ffn_norm.weight" [embed] : f32[32]
  %gate.w = param "layers.0.moe.gate.weight" [choices, embed] : f32[8,32]
  %w13.w = param "layers.0.moe.w13.weight" [experts, ffn(24|24), embed] : f32[8,48,32]
  %w2.w = param "layers.0.moe.w2.weight" [experts, embed, ffn] : f32[8,32,24]
  %ffn_norm, %ffn_norm.rstd = rms_norm(%x, %ffn_norm.w) : f32[4,16,32], f32[4,16]  # layers.0.ffn_norm fwd
  %logits = matmul(%ffn_norm, %gate.w; tb=true) : f32[4,16,8]  # layers.0.moe fwd
  %weights, %index = router(%logits; top_k=2, normalize=true) : f32[4,16,2], i32[4,16,2]  # layers.0.moe fwd
  %counts = expert_counts(%index; experts=8) : f32[1,8]  # layers.0.moe fwd
  %offsets, %at = route(%index; experts=8, slots=128) : i32[1,1,9], i32[4,16,2]  # layers.0.moe fwd
  %rows = dispatch(%ffn_norm, %at; slots=128) : f32[1,1,128,32]  # layers.0.moe fwd
  %row_weights = dispatch_weights(%weights, %at; slots=128) : f32[1,1,128]  # layers.0.moe fwd
  %gate_up = grouped_matmul(%rows, %offsets, %w13.w; tb=true) : f32[1,1,128,48]  # layers.0.moe fwd
  %swiglu = weighted_swiglu(%gate_up, %offsets, %row_weights) : f32[1,1,128,24]  # layers.0.moe fwd
  %down = grouped_matmul(%swiglu, %offsets, %w2.w; tb=true) : f32[1,1,128,32]  # layers.0.moe fwd
  %out = combine(%down, %at) : f32[4,16,32]  # layers.0.moe fwd
  %y = add(%x, %out) : f32[4,16,32]  # layers.0 fwd
  %loss, %loss.lse = cross_entropy(%y, %targets, %count) : f32[], f32[4,16]  # loss fwd
  return loss=%loss
}
)";

// The block after the passes, with these settings.
std::string block_on(const std::string& mesh, const std::vector<std::string>& settings,
                     const std::vector<std::string>& passes) {
  Graph graph = parse_graph(kBlock);
  std::vector<const Pass*> list;
  for (const std::string& name : passes) list.push_back(find_pass(name));
  RunOptions options;
  options.mesh = parse_mesh(mesh);
  run_passes(graph, list, parse_config("", "test", settings), DeviceSpec(), options);
  return print_graph(graph);
}

struct Case {
  std::string name;
  std::string mesh;
  std::vector<std::string> settings = {};
};

class PlaceExperts : public testing::TestWithParam<Case> {};

TEST_P(PlaceExperts, GivesTheGolden) {
  const auto& [name, mesh, settings] = GetParam();
  expect_golden("experts/" + name + ".txt", block_on(mesh, settings, {"autodiff", "place"}));
}

INSTANTIATE_TEST_SUITE_P(
    , PlaceExperts,
    testing::Values(Case{"dp4_ep2", "dp_shard=4; edp=2, ep=2"}, Case{"dp4_ep4", "dp_shard=4; ep=4"},
                    Case{"replicate2_dp2_ep2", "dp_replicate=2, dp_shard=2; ep=2"},
                    Case{"dp2_tp2_ep2", "dp_shard=2, tp=2; edp=2, ep=2"},
                    Case{"dp2_tp2_ep4", "dp_shard=2, tp=2; ep=4"},
                    Case{"dp2_tp2_ep2_full_sequence",
                         "dp_shard=2, tp=2; edp=2, ep=2",
                         {"--parallelism.sequence_parallel=false"}},
                    Case{"dp2_tp2", "dp_shard=2, tp=2"},
                    Case{"dp2_tp2_full_sequence",
                         "dp_shard=2, tp=2",
                         {"--parallelism.sequence_parallel=false"}},
                    Case{"dp2_cp2_ep2", "dp_shard=2, cp=2; edp=2, ep=2"},
                    Case{"dp2_cp2_tp2_ep4", "dp_shard=2, cp=2, tp=2; edp=2, ep=4"}),
    [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

TEST(PlacedExperts, StoreAndUpdateExpertsOverEdp) {
  expect_golden(
      "experts/dp4_ep2_stored.txt",
      block_on("dp_shard=4; edp=2, ep=2", {}, {"autodiff", "optimizer", "place", "shard_params"}));
  expect_golden(
      "experts/dp4_ep4_stored.txt",
      block_on("dp_shard=4; ep=4", {}, {"autodiff", "optimizer", "place", "shard_params"}));
}

TEST(PlacedExperts, RepeatsRowsButNoDecisions) {
  expect_golden("experts/dp4_ep2_recomputed.txt",
                block_on("dp_shard=4; edp=2, ep=2", {"--activation_checkpoint.mode=full"},
                         {"autodiff", "place", "shard_params", "recompute"}));
}

// A source has 16 tokens with two choices each: 8 rows for each of four ranks on average, and at
// most 32.
TEST(PlacedExperts, HaveSlotsByCapacity) {
  const auto route = [](const std::vector<std::string>& settings) {
    const std::string text = block_on("dp_shard=4; ep=4", settings, {"place"});
    const size_t begin = text.find("route(");
    return text.substr(begin, text.find(')', begin) - begin + 1);
  };
  const std::string factor = "--parallelism.expert_capacity_factor=";
  EXPECT_EQ(route({}), "route(%index; experts=8, slots=32, parts=4, sources=4)");
  EXPECT_EQ(route({factor + "2"}), "route(%index; experts=8, slots=16, parts=4, sources=4)");
  EXPECT_EQ(route({factor + "1.3"}), "route(%index; experts=8, slots=11, parts=4, sources=4)");
  EXPECT_EQ(route({factor + "4"}), route({}));
}

TEST(PlacedExperts, RefusesTokensThatRanksDoNotDivide) {
  EXPECT_EQ(user_error_of([] { block_on("dp_shard=2, tp=3; ep=6", {}, {"place"}); }),
            "place: cp x tp = 3 does not divide the sequence of 16 tokens, which expert "
            "parallelism needs; use a multiple of 3");
}

}  // namespace
}  // namespace weft

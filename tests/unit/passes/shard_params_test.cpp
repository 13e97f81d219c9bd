// Complete models on meshes: the number of collectives in each mode, and what they move.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/ops/ops.h"
#include "graph/text.h"
#include "model/model.h"
#include "passes/pass.h"
#include "support/steep_device.h"

namespace weft {
namespace {

const Mesh kSharded{{{"dp_shard", 4}}};
const Mesh kReplicated{{{"dp_replicate", 4}}};
const Mesh kHybrid{{{"dp_replicate", 2}, {"dp_shard", 2}}};

Config config_for(const std::string& model) {
  Config config;
  config.model.name = model;
  config.model.flavor = model == "gpt2" ? "tiny" : "debug";
  config.training.mixed_precision_param = Precision::Bfloat16;
  config.training.local_batch_size = 2;
  return config;
}

// The pipeline up to recompute: one bucket per parameter, collectives not split.
Graph compile(const Config& config, const Mesh& mesh, Goal goal = Goal::Train) {
  const ModelSpec spec = resolve_model(config.model, 256);
  const BuildMode mode = goal == Goal::Train ? BuildMode::Train : BuildMode::Eval;
  Graph graph = build_model(spec, {.batch = 8, .seq_len = 16, .mode = mode}).graph;
  const Pass* passes[] = {&mixed_precision, &autodiff,     &optimizer, &simplify,
                          &place,           &shard_params, &simplify,  &recompute};
  RunOptions options;
  options.goal = goal;
  options.mesh = mesh;
  run_passes(graph, passes, config, steep_device(), options);
  return graph;
}

int64_t parameters(const Config& config) {
  const ModelSpec spec = resolve_model(config.model, 256);
  return static_cast<int64_t>(build_model(spec, {.batch = 8, .seq_len = 16}).params.size());
}

int64_t count_op(const Graph& graph, const OpDef& op) {
  return std::count_if(graph.order().begin(), graph.order().end(),
                       [&](const auto& node) { return node->op == &op; });
}

int64_t gathered_elements(const Graph& graph) {
  int64_t elements = 0;
  for (const auto& node : graph.order()) {
    if (node->op == &kAllGather) elements += node->result()->type.elements();
  }
  return elements;
}

class ShardParams : public testing::TestWithParam<std::string> {
 protected:
  Config config_ = config_for(GetParam());
  const int64_t params_ = parameters(config_);
};

TEST_P(ShardParams, FullyShardedGathersAndReducesEachParameter) {
  config_.parallelism.fsdp_reshard_after_forward = ReshardPolicy::Never;
  const Graph graph = compile(config_, kSharded);
  EXPECT_EQ(count_op(graph, kParam), 0);
  EXPECT_EQ(count_op(graph, kBucket), params_);
  EXPECT_EQ(count_op(graph, kAllGather), params_);
  EXPECT_EQ(count_op(graph, kReduceScatter), params_);
  EXPECT_EQ(count_op(graph, kAllReduce), 2);  // loss and norm
}

TEST_P(ShardParams, ReshardGathersAgainWhatTheBackwardReads) {
  config_.parallelism.fsdp_reshard_after_forward = ReshardPolicy::Never;
  const int64_t once = gathered_elements(compile(config_, kSharded));
  config_.parallelism.fsdp_reshard_after_forward = ReshardPolicy::Always;
  const Graph graph = compile(config_, kSharded);
  // No gradient reads biases and tables that are only added or looked up.
  EXPECT_GT(gathered_elements(graph), once * 3 / 2);
  EXPECT_LE(gathered_elements(graph), once * 2);
  for (const auto& node : graph.order()) {
    if (node->phase != Phase::Backward) continue;
    for (const Value* operand : node->operands) {
      EXPECT_FALSE(operand->def->op == &kAllGather && !operand->def->recomputed)
          << print_node(*node);
    }
  }
}

TEST_P(ShardParams, HybridReducesShardsAcrossReplicas) {
  const Graph graph = compile(config_, kHybrid);
  EXPECT_EQ(count_op(graph, kReduceScatter), params_);
  EXPECT_EQ(count_op(graph, kAllReduce), params_ + 2);  // loss over both axes, norm over one
  for (const auto& node : graph.order()) {
    if (node->op != &kAllReduce || node->phase != Phase::Backward) continue;
    EXPECT_NE(placement_over(node->result()->type, "dp_shard"), nullptr) << print_node(*node);
  }
}

TEST_P(ShardParams, ReplicatedOnlyReduces) {
  const Graph graph = compile(config_, kReplicated);
  EXPECT_EQ(count_op(graph, kParam), params_);
  EXPECT_EQ(count_op(graph, kAllGather), 0);
  EXPECT_EQ(count_op(graph, kAllReduce), params_ + 1);
}

TEST_P(ShardParams, TheFirstStageGathersAfterTheUpdate) {
  config_.parallelism.zero_stage = 1;
  const Graph graph = compile(config_, kSharded);
  EXPECT_EQ(count_op(graph, kAllGather), params_);
  for (const auto& node : graph.order()) {
    if (node->op == &kAllGather) {
      EXPECT_EQ(node->phase, Phase::Optimizer) << print_node(*node);
    }
  }
}

TEST_P(ShardParams, WithoutReductionOnEveryMicroBatchNoGradientIsReducedInTheBackward) {
  config_.training.global_batch_size = 16;
  config_.training.reduce_every_micro_batch = false;
  for (const Mesh& mesh : {kSharded, kReplicated, kHybrid}) {
    const Graph graph = compile(config_, mesh);
    EXPECT_EQ(count_op(graph, kAccumulate), params_);
    for (const auto& node : graph.order()) {
      const bool reduces = node->op == &kReduceScatter || node->op == &kAllReduce;
      EXPECT_FALSE(reduces && node->phase == Phase::Backward) << print_node(*node);
    }
  }
}

TEST_P(ShardParams, EvaluationOnlyGathersAndReducesTheLoss) {
  const Graph graph = compile(config_, kSharded, Goal::Evaluate);
  EXPECT_EQ(count_op(graph, kAllGather), params_);
  EXPECT_EQ(count_op(graph, kReduceScatter), 0);
  EXPECT_EQ(count_op(graph, kAllReduce), 1);
}

INSTANTIATE_TEST_SUITE_P(Models, ShardParams, testing::Values("gpt2", "llama"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace weft

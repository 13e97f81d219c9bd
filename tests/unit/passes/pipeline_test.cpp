// The pipeline on complete models: the same bytes each time, bounded time for the largest, and
// recompute modes that keep less and less.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/text.h"
#include "model/model.h"
#include "passes/pass.h"
#include "passes/recompute_policy.h"
#include "support/steep_device.h"

namespace weft {
namespace {

struct Compiled {
  Graph graph;
  std::vector<PassReport> reports;
};

Config config_for(const std::string& model, const std::string& flavor) {
  Config config;
  config.model.name = model;
  config.model.flavor = flavor;
  config.training.mixed_precision_param = Precision::Bfloat16;
  return config;
}

Compiled compile(const Config& config, Goal goal = Goal::Train) {
  const ModelSpec spec = resolve_model(config.model, 256);
  const BuildMode mode = goal == Goal::Train ? BuildMode::Train : BuildMode::Eval;
  Graph graph = build_model(spec, {.batch = 2, .seq_len = 32, .mode = mode}).graph;
  RunOptions options;
  options.goal = goal;
  auto reports = run_passes(graph, pipeline(), config, steep_device(), options);
  return {std::move(graph), std::move(reports)};
}

int64_t kept(const Graph& graph) {
  int64_t bytes = 0;
  for (const auto& node : graph.order()) {
    if (node->phase != Phase::Forward || node->op->traits.source) continue;
    bytes += kept_bytes(*node, graph.mesh());
  }
  return bytes;
}

int64_t kept_with(RecomputeMode mode, double budget = 0.5) {
  Config config = config_for("llama", "debug");
  config.activation_checkpoint.mode = mode;
  config.activation_checkpoint.memory_budget = budget;
  return kept(compile(config).graph);
}

TEST(Pipeline, TwoCompilationsGiveTheSameBytes) {
  for (const auto* model : {"gpt2", "llama"}) {
    Config config = config_for(model, std::string(model) == "gpt2" ? "tiny" : "debug");
    config.activation_checkpoint.mode = RecomputeMode::MemoryBudget;
    EXPECT_EQ(print_graph(compile(config).graph), print_graph(compile(config).graph));
  }
}

TEST(Pipeline, EvaluationHasNoBackward) {
  const Compiled compiled = compile(config_for("gpt2", "tiny"), Goal::Evaluate);
  for (const auto& node : compiled.graph.order()) EXPECT_EQ(node->phase, Phase::Forward);
}

TEST(Pipeline, TheLargestModelCompilesInTimeLinearInItsLayers) {
  Config config = config_for("llama", "405B");
  config.activation_checkpoint.mode = RecomputeMode::Full;
  double milliseconds = 0;
  for (const auto& report : compile(config).reports) milliseconds += report.milliseconds;
  // About 0.1 s in a release build; the slack is for sanitizers, not for a quadratic scan.
  EXPECT_LT(milliseconds, 3000);
}

TEST(Pipeline, TheLargestModelCompilesForManyRanksInTimeLinearInItsLayers) {
  Config config = config_for("llama", "405B");
  config.training.local_batch_size = 1;
  const ModelSpec spec = resolve_model(config.model, 256);
  Graph graph = build_model(spec, {.batch = 512, .seq_len = 32}).graph;
  RunOptions options;
  options.mesh = {{{"dp_replicate", 8}, {"dp_shard", 64}}};
  const Pass* passes[] = {&mixed_precision, &autodiff,     &optimizer, &simplify,
                          &place,           &shard_params, &simplify,  &recompute};
  double milliseconds = 0;
  for (const auto& report : run_passes(graph, passes, config, DeviceSpec(), options)) {
    milliseconds += report.milliseconds;
  }
  // About 0.3 s in a release build; the slack is for sanitizers, not for a quadratic scan.
  EXPECT_LT(milliseconds, 6000);
}

TEST(Pipeline, ModesKeepLessAndLess) {
  const int64_t none = kept_with(RecomputeMode::None);
  const int64_t full = kept_with(RecomputeMode::Full);
  EXPECT_LT(full, none / 2);
  EXPECT_EQ(kept_with(RecomputeMode::MemoryBudget, 1.0), none);
  EXPECT_EQ(kept_with(RecomputeMode::MemoryBudget, 0.0), full);
  int64_t last = none;
  for (double budget : {0.8, 0.6, 0.4, 0.2}) {
    const int64_t bytes = kept_with(RecomputeMode::MemoryBudget, budget);
    EXPECT_LT(bytes, last) << budget;
    EXPECT_LE(static_cast<double>(bytes),
              static_cast<double>(full) + budget * static_cast<double>(none - full))
        << budget;
    last = bytes;
  }
  EXPECT_LT(kept_with(RecomputeMode::Selective), none);
  EXPECT_GT(kept_with(RecomputeMode::Selective), full);
}

}  // namespace
}  // namespace weft

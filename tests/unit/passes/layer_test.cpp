// One Llama layer on several meshes, node by node: where every value lies, which collectives move
// it, and how many bytes each rank sends (tests/golden/meshes). The sizes are those of a layer that
// was worked out by hand; README.md there lists where the two differ.
#include <gtest/gtest.h>

#include "base/text.h"
#include "graph/comm_cost.h"
#include "graph/ops/ops.h"
#include "graph/text.h"
#include "model/model.h"
#include "passes/pass.h"
#include "support/golden.h"

namespace weft {
namespace {

ModelSpec layer_spec() {
  Config config;
  config.model.name = "llama";
  config.model.flavor = "debug";
  config.model.dim = 64;
  config.model.n_heads = 8;
  config.model.n_kv_heads = 4;
  config.model.n_layers = 1;
  config.model.ffn_dim = 96;
  config.model.vocab_size = 128;
  return resolve_model(config.model, 0);
}

// Bytes that each rank sends. A flat shard counts with its padding.
int64_t sent_bytes(const Node& node, const Mesh& mesh) {
  const CollectiveInfo& info = *node.op->collective;
  const int64_t ranks = mesh.axis_size(std::get<std::string>(node.attr("axis")));
  const Value& shard = is_gather(*node.op) ? *node.operand("x") : *node.result();
  const int64_t bytes = is_flat_collective(node) && info.sharded
                            ? ranks * local_bytes(shard.type, mesh)
                            : static_cast<int64_t>(collective_bytes(node.call(), mesh));
  const int64_t shares = bytes / ranks * (ranks - 1);
  return info.sent == CollectiveSent::SharesTwice ? 2 * shares : shares;
}

// Stored parameters, forward and backward.
std::string layer_text(const Mesh& mesh, const Config& config) {
  const bool shares_tokens = mesh.axes.back().name == "cp";
  Graph graph =
      build_model(layer_spec(), {.batch = 4, .seq_len = 16, .positions = shares_tokens}).graph;
  const Pass* passes[] = {&autodiff,     &optimizer, &simplify,  &place,
                          &shard_params, &simplify,  &recompute, &bucket};
  RunOptions options;
  options.mesh = mesh;
  run_passes(graph, passes, config, DeviceSpec(), options);
  std::string text;
  for (const auto& node : graph.order()) {
    if (node->phase == Phase::Optimizer || (node->op->traits.source && node->op != &kBucket)) {
      continue;
    }
    const std::string line = print_node(*node);
    text += line.substr(0, line.find("  #"));
    if (node->op->collective != nullptr) text += cat("  # ", sent_bytes(*node, mesh), " B");
    text += "\n";
  }
  return text;
}

TEST(Layer, TensorAndSequenceParallel) {
  expect_golden("meshes/tp2.txt", layer_text({{{"tp", 2}}}, {}));
}

TEST(Layer, TensorParallelWithFullSequences) {
  Config config;
  config.parallelism.sequence_parallel = false;
  expect_golden("meshes/tp2_full_sequence.txt", layer_text({{{"tp", 2}}}, config));
}

TEST(Layer, ShardedDataAndTensorParallel) {
  expect_golden("meshes/dp_shard2_tp2.txt", layer_text({{{"dp_shard", 2}, {"tp", 2}}}, {}));
}

TEST(Layer, ShardedDataAndContextParallel) {
  expect_golden("meshes/dp_shard2_cp2.txt", layer_text({{{"dp_shard", 2}, {"cp", 2}}}, {}));
}

TEST(Layer, RecomputedInFull) {
  Config config;
  config.activation_checkpoint.mode = RecomputeMode::Full;
  expect_golden("meshes/dp_shard2_tp2_recompute.txt",
                layer_text({{{"dp_shard", 2}, {"tp", 2}}}, config));
}

}  // namespace
}  // namespace weft

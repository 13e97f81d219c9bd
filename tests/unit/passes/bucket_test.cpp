// Buckets and schedules of complete models on every kind of mesh, beyond the golden tests; the
// runner verifies each graph.
#include <gtest/gtest.h>

#include <map>

#include "base/text.h"
#include "graph/comm_cost.h"
#include "graph/ops/ops.h"
#include "graph/text.h"
#include "graph/timeline.h"
#include "model/model.h"
#include "passes/pass.h"

namespace weft {
namespace {

struct Setting {
  std::string model;
  Mesh mesh;
  int64_t accumulation = 1;
  bool first_stage = false;
};

Config config_for(const Setting& setting, BucketingMode mode) {
  Config config;
  config.model.name = setting.model;
  config.model.flavor = setting.model == "gpt2" ? "tiny" : "debug";
  config.training.mixed_precision_param = Precision::Bfloat16;
  config.training.local_batch_size = 1;
  config.training.global_batch_size = setting.mesh.ranks() * setting.accumulation;
  config.activation_checkpoint.mode = RecomputeMode::Full;
  if (setting.first_stage) config.parallelism.zero_stage = 1;
  config.compile.bucketing = mode;
  config.compile.bucket_min_parameters = 20'000;
  config.compile.buckets = {"tok_embeddings", "layers.*.attention", "layers.*", "norm+output"};
  if (setting.model == "gpt2") {
    config.compile.buckets = {"tok_embeddings+pos_embeddings", "layers.*", "norm"};
  }
  config.device.spec = "cpu";
  return config;
}

Graph compile(const Setting& setting, const Config& config) {
  const ModelSpec spec = resolve_model(config.model, 256);
  Graph graph = build_model(spec, {.batch = setting.mesh.ranks(), .seq_len = 16}).graph;
  RunOptions options;
  options.mesh = setting.mesh;
  run_passes(graph, pipeline(), config, load_device_spec(config, "cpu"), options);
  return graph;
}

std::vector<Setting> settings() {
  const Mesh one{{{"dp_shard", 1}}};
  const Mesh ddp{{{"dp_replicate", 4}}};
  const Mesh fsdp{{{"dp_shard", 4}}};
  const Mesh hybrid{{{"dp_replicate", 2}, {"dp_shard", 2}}};
  std::vector<Setting> list = {{"llama", fsdp}, {"llama", hybrid, 2}};
  for (const Mesh& mesh : {one, ddp, fsdp, hybrid}) {
    for (int64_t accumulation : {1, 2}) {
      list.push_back({"gpt2", mesh, accumulation});
      if (mesh != ddp) list.push_back({"gpt2", mesh, accumulation, true});
    }
  }
  return list;
}

// Names of parameters that are in a bucket or have their own update.
std::map<std::string, int> stored(const Graph& graph) {
  std::map<std::string, int> names;
  for (const auto& node : graph.order()) {
    if (node->op == &kParam) ++names[std::get<std::string>(node->attrs[0])];
    if (node->op != &kBucket) continue;
    for (const auto& member : std::get<std::vector<std::string>>(node->attrs[0])) ++names[member];
  }
  return names;
}

constexpr BucketingMode kModes[] = {BucketingMode::None, BucketingMode::TransformerBlock,
                                    BucketingMode::Size, BucketingMode::Manual,
                                    BucketingMode::Auto};

TEST(Bucket, EveryModeStoresEveryParameterOnceOnEveryMesh) {
  for (const Setting& setting : settings()) {
    const auto expected = stored(compile(setting, config_for(setting, BucketingMode::None)));
    for (BucketingMode mode : kModes) {
      SCOPED_TRACE(cat(setting.model, " ", setting.mesh.ranks(), " ranks, ", setting.accumulation,
                       " micro-batches, mode ", static_cast<int>(mode)));
      const Graph graph = compile(setting, config_for(setting, mode));
      EXPECT_EQ(stored(graph), expected);
      EXPECT_EQ(print_graph(parse_graph(print_graph(graph))), print_graph(graph));
    }
  }
}

TEST(Bucket, ABlockIsGatheredAndReducedOnceInEachDirection) {
  const Setting setting{"llama", {{{"dp_shard", 4}}}};
  const Graph graph = compile(setting, config_for(setting, BucketingMode::TransformerBlock));
  std::map<std::string, int> count;
  for (const auto& node : graph.order()) {
    if (!is_gather(*node->op) && node->op != &kReduceScatterStart) continue;
    ++count[cat(node->op->name(), " ", phase_name(node->phase))];
  }
  const int64_t blocks = resolve_model(config_for(setting, {}).model, 256).n_layers;
  EXPECT_EQ(count["all_gather_start fwd"], blocks + 2);
  EXPECT_EQ(count["all_gather_start bwd"], blocks);  // the last bucket is kept, tokens need none
  EXPECT_EQ(count["reduce_scatter_start bwd"], blocks + 2);
}

TEST(Bucket, BucketsAndOverlapSaveTimeOnSlowLinks) {
  const Setting setting{"llama", {{{"dp_shard", 4}}}};
  Config config = config_for(setting, BucketingMode::None);
  config.compile.overlap = false;
  const DeviceSpec device = load_device_spec(config, "cpu");
  const auto seconds = [&] {
    const Graph graph = compile(setting, config);
    return estimate_step(graph, graph.nodes(), device, 1).time.seconds;
  };
  const double plain = seconds();
  config.compile.bucketing = BucketingMode::TransformerBlock;
  const double merged = seconds();
  config.compile.overlap = true;
  const double overlapped = seconds();
  EXPECT_LT(merged, plain);
  EXPECT_LT(overlapped, merged);
}

}  // namespace
}  // namespace weft

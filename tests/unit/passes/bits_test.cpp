// Passes that are on by default must not change a bit: runs full training steps with and without
// them, node by node on the reference kernels, and compares bytes.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/hash.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"
#include "model/model.h"
#include "passes/pass.h"
#include "plan/kernel.h"
#include "runtime/reference/kernels.h"

namespace weft {
namespace {

constexpr int64_t kVocabulary = 64;

using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Values of a source, from its name alone.
Bytes source_bytes(const std::string& name, const TensorType& type) {
  if (name == "rng") return bytes_of<int32_t>({11, 0, 3, 0});
  if (name == "loss_scale") return bytes_of<float>({1.0f});
  if (name == "lr") return bytes_of<float>({1e-2f});
  if (name == "count") return bytes_of<float>({13.0f});
  const auto size = static_cast<size_t>(type.elements());
  const bool is_moment = name.starts_with("m.") || name.starts_with("v.");
  if (is_moment || name == "adam.count" || name == "micro" || name.starts_with("grad.")) {
    return Bytes(size * static_cast<size_t>(dtype_bytes(type.dtype)));
  }
  uint64_t state = hash_text(name);
  const auto next = [&] { return state = state * 6364136223846793005 + 1442695040888963407; };
  if (type.dtype == DType::I32) {
    std::vector<int32_t> ids(size);
    for (auto& id : ids) id = static_cast<int32_t>((next() >> 33) % kVocabulary);
    return bytes_of(ids);
  }
  std::vector<float> values(size);
  for (auto& value : values) value = (static_cast<float>(next() >> 40) / (1 << 24) - 0.5f) / 4;
  return bytes_of(values);
}

// Runs a graph and returns, by name, its outputs and every value that overwrites persistent memory.
class Interpreter {
 public:
  explicit Interpreter(const Graph& graph) {
    for (const auto& node : graph.order()) run(*node);
    for (const auto& output : graph.outputs()) results_[output.name()] = *memory_.at(output.value);
  }

  const std::map<std::string, Bytes>& results() const { return results_; }

 private:
  void run(const Node& node) {
    if (node.op->traits.source) {
      const std::string name = node.op == &kState ? to_string(state_key(node)) : source_name(node);
      const auto bytes = std::make_shared<Bytes>(source_bytes(name, node.result()->type));
      memory_[node.result()] = bytes;
      persistent_.insert(bytes.get());
      return;
    }
    const Call call = node.call();
    const Kernel& kernel = choose_kernel(reference_kernels(), call, "reference", "value");
    Launch launch;
    launch.call = &call;
    for (const Value* operand : node.operands) launch.operands.push_back(tensor(operand));
    const std::vector<int> overwritten = overwritten_operands(call);
    for (const auto& value : node.results) {
      const int operand = overwritten[value->index];
      memory_[value.get()] =
          operand >= 0 ? memory_.at(node.operands[static_cast<size_t>(operand)])
                       : std::make_shared<Bytes>(static_cast<size_t>(value->type.bytes()));
      launch.results.push_back(tensor(value.get()));
    }
    Bytes workspace(kernel.workspace ? static_cast<size_t>(kernel.workspace(call)) : 0);
    launch.workspace = workspace.data();
    launch.workspace_bytes = static_cast<int64_t>(workspace.size());
    prepare(kernel, launch);
    kernel.launch(launch);
    for (const auto& value : node.results) {
      const Bytes& bytes = *memory_.at(value.get());
      if (persistent_.contains(&bytes)) results_[plain_name(*value)] = bytes;
    }
  }

  // The name of the value without the suffix that fuse adds.
  static std::string plain_name(const Value& value) {
    constexpr std::string_view kFused = ".fused";
    const std::string& name = value.name;
    return name.ends_with(kFused) ? name.substr(0, name.size() - kFused.size()) : name;
  }

  Tensor tensor(const Value* value) const {
    return {memory_.at(value)->data(), value->type.dtype, value->type.shape};
  }

  std::unordered_map<const Value*, std::shared_ptr<Bytes>> memory_;
  std::unordered_set<const Bytes*> persistent_;  // kept between steps
  std::map<std::string, Bytes> results_;
};

Config small(const std::string& model, Precision precision) {
  Config config;
  config.model.name = model;
  config.model.flavor = model == "gpt2" ? "tiny" : "debug";
  config.model.vocab_size = kVocabulary;
  config.model.dim = 32;
  config.model.n_layers = 3;
  config.model.n_heads = 4;
  if (model == "gpt2") config.model.dropout = 0.2;
  config.training.mixed_precision_param = precision;
  config.training.local_batch_size = 2;
  config.training.global_batch_size = 4;
  return config;
}

struct Step {
  std::map<std::string, Bytes> results;
  std::map<std::string, bool> changed;  // by pass
};

Step step(const Config& config) {
  const ModelSpec spec = resolve_model(config.model, kVocabulary);
  Graph graph = build_model(spec, {.batch = 2, .seq_len = 8, .mode = BuildMode::Train}).graph;
  DeviceSpec device;
  device.memory_bandwidth = 1e10;
  device.matmul_flops_f32 = 1e11;
  device.matmul_flops_bf16 = 1e11;
  Step made;
  for (const auto& report : run_passes(graph, pipeline(), config, device)) {
    made.changed[report.pass] = report.changed;
  }
  made.results = Interpreter(graph).results();
  return made;
}

struct Case {
  std::string model;
  Precision precision;
};

class Bits : public testing::TestWithParam<Case> {
 protected:
  Config config_ = small(GetParam().model, GetParam().precision);
};

TEST_P(Bits, OptionalPassesChangeNone) {
  Config bare = config_;
  bare.compile.disable_passes = {"simplify", "recompute", "fuse"};
  const auto expected = step(bare).results;
  ASSERT_GT(expected.size(), 30u);
  ASSERT_EQ(expected.at("loss").size(), sizeof(float));
  const Step optimized = step(config_);
  EXPECT_TRUE(optimized.changed.at("fuse"));  // the loss; with dropout the residual
  EXPECT_EQ(optimized.results, expected);
}

TEST_P(Bits, RecomputeChangesNone) {
  const auto expected = step(config_).results;
  for (RecomputeMode mode :
       {RecomputeMode::Full, RecomputeMode::Selective, RecomputeMode::MemoryBudget}) {
    config_.activation_checkpoint.mode = mode;
    const Step recomputed = step(config_);
    EXPECT_TRUE(recomputed.changed.at("recompute")) << static_cast<int>(mode);
    EXPECT_EQ(recomputed.results, expected) << static_cast<int>(mode);
  }
  config_.activation_checkpoint.mode = RecomputeMode::Selective;
  for (const auto* option : {"1", "op", "from:2"}) {
    config_.activation_checkpoint.selective_ac_option = option;
    const Step recomputed = step(config_);
    EXPECT_TRUE(recomputed.changed.at("recompute")) << option;
    EXPECT_EQ(recomputed.results, expected) << option;
  }
}

TEST_P(Bits, AnotherPrecisionDoesChangeThem) {
  const auto expected = step(config_).results;
  const bool low = GetParam().precision == Precision::Bfloat16;
  const Config other = small(GetParam().model, low ? Precision::Float32 : Precision::Bfloat16);
  EXPECT_NE(step(other).results, expected);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Bits,
    testing::Values(Case{"gpt2", Precision::Float32}, Case{"gpt2", Precision::Bfloat16},
                    Case{"llama", Precision::Float32}, Case{"llama", Precision::Bfloat16}),
    [](const auto& tested) {
      return tested.param.model + (tested.param.precision == Precision::Float32 ? "_f32" : "_bf16");
    });

}  // namespace
}  // namespace weft

// weft compare finds errors planted into one of two plans, at the first value they change.
#include "tools/compare.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "config/load.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "support/user_error.h"

namespace weft {
namespace {

using Overrides = std::vector<std::string>;

const Overrides kModel = {"--model.name=llama",     "--model.flavor=debug",  "--model.dim=32",
                          "--model.n_heads=4",      "--model.n_kv_heads=2",  "--model.n_layers=2",
                          "--model.ffn_dim=48",     "--training.seq_len=16", "--device.threads=1",
                          "--compile.overlap=false"};

ComparedRun make(int64_t ranks, const Overrides& more) {
  Overrides overrides = kModel;
  overrides.insert(overrides.end(), more.begin(), more.end());
  const Config config = parse_config("", "test", overrides);
  return {config, compile(config, {.data_vocab = 0, .ranks = ranks, .keep_values = true})};
}

ComparedRun one_rank() {
  return make(1, {"--training.local_batch_size=4"});
}

ComparedRun mesh(const Overrides& more = {}) {
  Overrides overrides = {"--parallelism.tensor_parallel_degree=2", "--training.local_batch_size=2"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return make(4, overrides);
}

std::vector<Step>& steps(ComparedRun& run) {
  return run.compiled.plan.programs[static_cast<size_t>(ProgramKind::Last)];
}

// The step that computes the value.
size_t find(const ComparedRun& run, const std::string& value) {
  for (size_t i = 0; i < run.compiled.values.size(); ++i) {
    for (const PlanValue& result : run.compiled.values[i]) {
      if (result.name == value || result.name == value + ".fused") return i;
    }
  }
  throw std::runtime_error("no value " + value);
}

// Without overlap there is one stream, so a step can be left out.
void remove(ComparedRun& run, size_t step) {
  steps(run).erase(steps(run).begin() + static_cast<int64_t>(step));
  run.compiled.values.erase(run.compiled.values.begin() + static_cast<int64_t>(step));
}

std::string first_difference(const ComparedRun& two, const CompareOptions& options = {}) {
  const PlanComparison comparison = compare_plans(one_rank(), two, options);
  EXPECT_GT(comparison.values, 60);
  return comparison.first ? cat(comparison.first->value, " ", comparison.first->where) : "none";
}

TEST(Compare, MeshesAgree) {
  const PlanComparison comparison =
      compare_plans(one_rank(), mesh(), {.steps = 2, .tolerance = {}});
  EXPECT_FALSE(comparison.first) << to_string(comparison);
  EXPECT_GT(comparison.values, 120);
  EXPECT_LT(comparison.identical, comparison.values);
  EXPECT_EQ(to_string(comparison),
            cat("within tolerance: ", comparison.values, " values compared, ", comparison.identical,
                " of them identical"));
}

// With twice as many heads as kv heads, kv is as wide as q; its parts are not those of q.
TEST(Compare, MeshesWithContextParallelismAgree) {
  const ComparedRun run =
      make(4, {"--parallelism.tensor_parallel_degree=2", "--parallelism.context_parallel_degree=2",
               "--training.local_batch_size=4"});
  const PlanComparison comparison = compare_plans(one_rank(), run, {});
  EXPECT_FALSE(comparison.first) << to_string(comparison);
  EXPECT_GT(comparison.values, 60);
}

TEST(Compare, TheSamePlanIsIdentical) {
  const PlanComparison comparison = compare_plans(mesh(), mesh(), {});
  EXPECT_EQ(comparison.identical, comparison.values) << to_string(comparison);
  EXPECT_TRUE(to_string(comparison).starts_with("identical: ")) << to_string(comparison);
}

TEST(Compare, FindsAMissingReduction) {
  ComparedRun run = mesh();
  remove(run, find(run, "l0.attention.out.shard"));
  EXPECT_EQ(first_difference(run), "%l0.mid layers.0 fwd");
}

// The loss is divided by the scale of the loss, 1, instead of by the number of tokens.
TEST(Compare, FindsAWrongDivisor) {
  ComparedRun run = mesh();
  Step& step = steps(run)[find(run, "loss")];
  const std::vector<Binding>& inputs = run.compiled.plan.inputs;
  const auto scale = std::find_if(inputs.begin(), inputs.end(), [](const Binding& input) {
    return input.name == names::kLossScale;
  });
  ASSERT_NE(scale, inputs.end());
  step.operands.at(find_op(step.op)->parsed().operand_index("count")) = scale->tensor;
  EXPECT_EQ(first_difference(run), "the loss of all ranks");
}

TEST(Compare, FindsAWrongAttribute) {
  ComparedRun run = mesh();
  Step& step = steps(run)[find(run, "l1.ffn_norm")];
  step.attrs.at(find_op(step.op)->parsed().attr_index("eps")) = 0.5;
  EXPECT_EQ(first_difference(run), "%l1.ffn_norm layers.1.ffn_norm fwd");
}

// The weights of one block in the places of another's.
TEST(Compare, FindsSwappedMembers) {
  ComparedRun run = mesh();
  TensorRef& one = steps(run)[find(run, "l0.attention.qkv")].operands.at(1);
  TensorRef& two = steps(run)[find(run, "l0.attention.out")].operands.at(1);
  ASSERT_EQ(one.buffer, two.buffer);
  std::swap(one.offset, two.offset);
  EXPECT_EQ(first_difference(run), "%l0.attention.qkv layers.0.attention fwd");
}

TEST(Compare, FindsAWrongDtype) {
  EXPECT_EQ(first_difference(mesh({"--training.mixed_precision_param=bfloat16"}),
                             {.steps = 1, .tolerance = 1e-4}),
            "%tok_embeddings tok_embeddings fwd");
}

// Only the casts of gradients before their reductions differ.
TEST(Compare, FindsAWrongDtypeAtACast) {
  const std::string compute = "--training.mixed_precision_param=bfloat16";
  const PlanComparison comparison =
      compare_plans(mesh({compute}), mesh({compute, "--training.mixed_precision_reduce=bfloat16"}),
                    {.steps = 1, .tolerance = 1e-6});
  ASSERT_TRUE(comparison.first);
  EXPECT_EQ(cat(comparison.first->value, " ", comparison.first->where),
            "%d.output.w.bf16 output bwd");
}

// One update is missing.
TEST(Compare, FindsAStaleWeight) {
  ComparedRun run = mesh();
  remove(run, find(run, "tok_embeddings.w.new"));
  const PlanComparison comparison = compare_plans(one_rank(), run, {.steps = 1, .tolerance = 1e-6});
  ASSERT_TRUE(comparison.first);
  EXPECT_EQ(comparison.first->value, "parameter tok_embeddings.weight") << to_string(comparison);
}

TEST(Compare, RefusesOtherBatches) {
  expect_user_error(
      ExitCode::Config,
      "the runs have batches of 4 x 16 and 2 x 16 tokens, expected the same; set "
      "training.global_batch_size and training.local_batch_size",
      [] { compare_plans(one_rank(), make(1, {"--training.local_batch_size=2"}), {}); });
}

}  // namespace
}  // namespace weft

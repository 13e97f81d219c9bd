// Training on meshes with tensor parallelism: every mesh agrees with one rank, and at a fixed
// degree the compiler's choices and the modes of data parallelism do not change a bit.
#include <gtest/gtest.h>

#include <cmath>

#include "ranks/modes.h"
#include "support/short_run.h"

namespace weft {
namespace {

constexpr int64_t kBatch = 4;

// Dropout, biases, a tied head, and a vocabulary that no degree divides.
const Overrides kGpt2 = {"--model.name=gpt2",    "--model.dim=32",         "--model.n_heads=4",
                         "--model.n_layers=2",   "--model.vocab_size=251", "--model.dropout=0.1",
                         "--training.seq_len=16"};
// Grouped queries, packed weights, a head of its own.
const Overrides kLlama = {"--model.name=llama", "--model.flavor=debug", "--model.dim=32",
                          "--model.n_heads=8",  "--model.n_kv_heads=4", "--model.n_layers=2",
                          "--model.ffn_dim=40", "--training.seq_len=16"};

struct MeshCase {
  std::string name;
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t tp = 1;
  Overrides more = {};

  int64_t ranks() const { return replicate * shard * tp; }
  Overrides overrides() const {
    return with({cat("--parallelism.data_parallel_replicate_degree=", replicate),
                 cat("--parallelism.data_parallel_shard_degree=", shard),
                 cat("--parallelism.tensor_parallel_degree=", tp),
                 cat("--training.local_batch_size=", kBatch / (replicate * shard))},
                more);
  }
};

const MeshCase kMeshes[] = {
    {"tp2", 1, 1, 2},
    {"tp4", 1, 1, 4},
    {"fsdp2_tp2", 1, 2, 2},
    {"ddp2_tp2", 2, 1, 2},
    {"hsdp_tp2", 2, 2, 2},
    {"tp2_full_sequence", 1, 1, 2, {"--parallelism.sequence_parallel=false"}},
    {"fsdp2_tp2_full_sequence", 1, 2, 2, {"--parallelism.sequence_parallel=false"}},
    {"tp2_gathered_logits", 1, 1, 2, {"--parallelism.disable_loss_parallel=true"}},
    {"fsdp2_tp2_chunks", 1, 2, 2, {"--training.loss_chunks=4"}},
    {"zero1_tp2", 1, 2, 2, {"--parallelism.zero_stage=1"}},
    {"accumulating_tp2",
     1,
     2,
     2,
     {"--training.local_batch_size=1", cat("--training.global_batch_size=", kBatch)}},
};

class Mesh : public testing::TestWithParam<std::tuple<std::string, MeshCase>> {
 protected:
  const Overrides& model() const { return std::get<0>(GetParam()) == "gpt2" ? kGpt2 : kLlama; }
};

// Gradients of wrong size or sign, masks that differ, or tokens counted twice show in the norm of
// the second step at the latest. The weights differ by rounding, which AdamW scales up.
TEST_P(Mesh, AgreesWithOneRank) {
  const MeshCase& mesh = std::get<1>(GetParam());
  const ShortRun one = short_run(with(model(), {cat("--training.local_batch_size=", kBatch)}), 4);
  const ShortRun run = short_run_on_ranks(mesh.ranks(), with(model(), mesh.overrides()), 4);
  ASSERT_EQ(run.losses.size(), one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i] / one.losses[i], 1, 2e-6) << "loss of step " << i + 1;
    EXPECT_NEAR(run.grad_norms[i] / one.grad_norms[i], 1, 2e-6) << "norm of step " << i + 1;
  }
  ASSERT_EQ(run.params.size(), one.params.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < one.params.size(); ++i) {
    difference += std::pow(run.params[i] - one.params[i], 2);
    size += std::pow(one.params[i], 2);
  }
  EXPECT_LT(std::sqrt(difference / size), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mesh,
                         testing::Combine(testing::Values("gpt2", "llama"),
                                          testing::ValuesIn(kMeshes)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param).name);
                         });

struct StepCase {
  std::string name;
  Overrides overrides;
  double tolerance = 2e-6;
};

class MeshSteps : public testing::TestWithParam<StepCase> {};

// Kinds of steps that change what is sent: other dtypes, and sequences that tp does not divide.
TEST_P(MeshSteps, AgreeWithOneRank) {
  const auto& [name, overrides, tolerance] = GetParam();
  const MeshCase mesh{"", 1, 2, 2};
  for (const Overrides& model : {kGpt2, kLlama}) {
    const Overrides step = with(model, overrides);
    const ShortRun one = short_run(with(step, {cat("--training.local_batch_size=", kBatch)}));
    const ShortRun run = short_run_on_ranks(mesh.ranks(), with(step, mesh.overrides()));
    for (size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(run.losses[i] / one.losses[i], 1, tolerance) << "loss of step " << i + 1;
      EXPECT_NEAR(run.grad_norms[i] / one.grad_norms[i], 1, 20 * tolerance)
          << "norm of step " << i + 1;
    }
  }
}

const StepCase kSteps[] = {
    {"bfloat16", {"--training.mixed_precision_param=bfloat16"}, 1e-3},
    {"bfloat16_kept",
     {"--training.mixed_precision_param=bfloat16", "--training.keep_low_precision=true"},
     1e-3},
    {"float16", {"--training.mixed_precision_param=float16"}, 2e-4},
    {"odd_sequence", {"--training.seq_len=15"}},
};
INSTANTIATE_TEST_SUITE_P(Ranks, MeshSteps, testing::ValuesIn(kSteps),
                         [](const auto& test) { return test.param.name; });

// Sums over tp come first in every micro-batch, so at a fixed degree the tree over micro-batches
// does not depend on the data-parallel ranks.
TEST(MeshElastic, BitsHoldOverDataParallelRanks) {
  const Overrides elastic =
      with(kLlama, {"--parallelism.tensor_parallel_degree=2", "--training.local_batch_size=1",
                    "--debug.deterministic=elastic", "--debug.elastic_shards=4"});
  const ShortRun expected = short_run_on_ranks(2, elastic);
  for (const int64_t ranks : {4, 8}) {
    EXPECT_TRUE(short_run_on_ranks(ranks, elastic) == expected) << ranks << " ranks";
  }
}

class MeshChoices : public testing::TestWithParam<std::string> {};

TEST_P(MeshChoices, KeepTheBits) {
  const Overrides& model = GetParam() == "gpt2" ? kGpt2 : kLlama;
  const MeshCase ddp{"", 2, 1, 2}, fsdp{"", 1, 2, 2};
  const Overrides plain = {"--compile.bucketing=none", "--compile.overlap=false"};
  const ShortRun expected = short_run_on_ranks(4, with(with(model, ddp.overrides()), plain));
  EXPECT_NE(expected.losses.front(), expected.losses.back());
  const std::vector<Overrides> choices = {
      {},
      {"--compile.overlap=false"},
      {"--compile.bucketing=none"},
      {"--compile.bucketing=auto"},
      {"--compile.bucketing=size", "--compile.bucket_min_parameters=3000"},
      {"--parallelism.fsdp_reshard_after_forward=never"},
      {"--parallelism.zero_stage=1"},
      {"--activation_checkpoint.mode=full"},
      {"--activation_checkpoint.mode=selective"},
      {"--activation_checkpoint.mode=selective", "--activation_checkpoint.selective_ac_option=op"},
      {"--activation_checkpoint.mode=memory_budget"},
      {"--activation_checkpoint.mode=full", "--compile.overlap=false"}};
  for (const Overrides& choice : choices) {
    EXPECT_TRUE(short_run_on_ranks(4, with(with(model, fsdp.overrides()), choice)) == expected)
        << join(choice, " ");
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, MeshChoices, testing::Values("gpt2", "llama"),
                         [](const auto& test) { return test.param; });

// What the blocks keep for the backward is a quarter with sequence parallelism. Without it, the
// values between the matmuls are full on every rank.
TEST(MeshMemory, ActivationsAreSharded) {
  const auto activations = [](const Overrides& more) {
    const PreparedRun run =
        prepare_run(4, with(with(kLlama, {"--model.n_layers=12", "--training.seq_len=256"}), more));
    return run.compiled.plan.arena_bytes - run.compiled.plan.persistent_bytes;
  };
  const int64_t shared =
      activations({"--parallelism.tensor_parallel_degree=4", "--training.local_batch_size=4"});
  const int64_t full_sequence =
      activations({"--parallelism.tensor_parallel_degree=4", "--training.local_batch_size=4",
                   "--parallelism.sequence_parallel=false"});
  EXPECT_LT(shared, full_sequence * 3 / 4);
}

}  // namespace
}  // namespace weft

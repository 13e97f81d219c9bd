// Training a mixture of experts on meshes: every mesh agrees with one rank, the bits do not depend
// on how many ranks share the experts, and checkpoints move between meshes.
#include <gtest/gtest.h>

#include <cmath>

#include "data/loader.h"
#include "ranks/modes.h"
#include "runtime/comm/single_rank.h"
#include "support/short_run.h"
#include "train/session.h"

namespace weft {
namespace {

constexpr int64_t kBatch = 4;

// Three of eight experts per token, so that the order of their sum shows.
const Overrides kExperts = {"--model.name=qwen3_moe",
                            "--model.flavor=debug",
                            "--model.dim=32",
                            "--model.n_heads=4",
                            "--model.n_kv_heads=2",
                            "--model.n_layers=2",
                            "--model.vocab_size=251",
                            "--model.ffn_dim=48",
                            "--model.expert_ffn_dim=32",
                            "--training.seq_len=16",

                            "--training.global_batch_size=4"};

struct ExpertMesh {
  std::string name;
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t cp = 1;
  int64_t tp = 1;
  int64_t ep = 1;
  Overrides more = {};

  int64_t ranks() const { return replicate * shard * cp * tp; }
  Overrides overrides() const {
    return with({cat("--parallelism.data_parallel_replicate_degree=", replicate),
                 cat("--parallelism.data_parallel_shard_degree=", shard),
                 cat("--parallelism.context_parallel_degree=", cp),
                 cat("--parallelism.tensor_parallel_degree=", tp),
                 cat("--parallelism.expert_parallel_degree=", ep),
                 cat("--training.local_batch_size=", kBatch / (replicate * shard))},
                more);
  }
};

const std::string kFullSequence = "--parallelism.sequence_parallel=false";
const Overrides kAccumulate = {"--training.local_batch_size=1", "--training.global_batch_size=8"};

const ExpertMesh kMeshes[] = {
    {.name = "fsdp4", .shard = 4},
    {.name = "fsdp4_ep2", .shard = 4, .ep = 2},
    {.name = "fsdp4_ep4", .shard = 4, .ep = 4},
    {.name = "hsdp_ep2", .replicate = 2, .shard = 2, .ep = 2},
    {.name = "fsdp2_cp2", .shard = 2, .cp = 2},
    {.name = "fsdp2_cp2_ep2", .shard = 2, .cp = 2, .ep = 2},
    {.name = "fsdp2_cp2_ep4", .shard = 2, .cp = 2, .ep = 4},
    {.name = "fsdp2_tp2", .shard = 2, .tp = 2},
    {.name = "fsdp2_tp2_ep2", .shard = 2, .tp = 2, .ep = 2},
    {.name = "fsdp2_tp2_ep4", .shard = 2, .tp = 2, .ep = 4},
    {.name = "fsdp2_tp2_full_sequence", .shard = 2, .tp = 2, .more = {kFullSequence}},
    {.name = "fsdp2_tp2_ep2_full_sequence", .shard = 2, .tp = 2, .ep = 2, .more = {kFullSequence}},
    {.name = "fsdp2_tp2_ep4_full_sequence", .shard = 2, .tp = 2, .ep = 4, .more = {kFullSequence}},
    {.name = "fsdp2_cp2_tp2_ep4", .shard = 2, .cp = 2, .tp = 2, .ep = 4},
    {.name = "zero1_ep2", .shard = 4, .ep = 2, .more = {"--parallelism.zero_stage=1"}},
    {.name = "recomputed_ep2", .shard = 4, .ep = 2, .more = {"--activation_checkpoint.mode=full"}},
};

Overrides one_rank() {
  return with(kExperts, {cat("--training.local_batch_size=", kBatch)});
}

// Experts 2 to 5 score alike at first: of equal scores the lower three win, so that 5 has no
// tokens. Values are functions of the element, so any mesh has the same.
void set_weights(const PreparedRun& prepared, Session& session) {
  session.set_params([&](size_t param, int64_t first, std::span<float> values) {
    const ParamInfo& info = prepared.compiled.params[param];
    const bool is_gate = info.name.ends_with("gate.weight");
    const int64_t width = info.shape.back();
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t at = first + static_cast<int64_t>(i), row = at / width;
      const int64_t shared = is_gate && row > 2 && row < 6 ? 2 : row;
      const auto phase = static_cast<double>(shared * width + at % width + 17 * (param + 1));
      values[i] = static_cast<float>(0.3 * std::sin(0.7 * phase) + (param % 3 == 0 ? 0.1 : 0));
    }
  });
}

// Losses, norms and all parameters after three steps from these weights.
ShortRun skewed_run(int64_t ranks, const Overrides& overrides) {
  const PreparedRun prepared = prepare_run(ranks, overrides);
  const int64_t length = prepared.config.training.seq_len;
  const auto fill = [&](int64_t first, Batch& batch) {
    const int64_t tokens = prepared.config.training.local_batch_size * length;
    batch.tokens.clear();
    batch.targets.clear();
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t sample = first + i / length, t = i % length;
      const bool ignored = t < 3 * sample || (t + sample) % 5 == 0;
      batch.tokens.push_back(static_cast<int32_t>(2 + (t * t + 7 * sample) % 60));
      batch.targets.push_back(ignored ? -1 : static_cast<int32_t>((t * 7 + sample) % 60));
    }
  };
  ShortRun run;
  const auto train = [&](Communicator& comm) {
    Session session(prepared.config, prepared.compiled, comm);
    set_weights(prepared, session);
    for (int64_t step = 0; step < 3; ++step) {
      const StepResult result = session.train_step({.step = step, .seed = 5, .lr = 1e-3}, fill);
      if (comm.rank() > 0) continue;
      run.losses.push_back(result.loss);
      run.grad_norms.push_back(result.grad_norm);
    }
  };
  if (ranks == 1) {
    train(single_rank());
  } else {
    on_ranks(prepared, train);
  }
  return run;
}

class ExpertMeshes : public testing::TestWithParam<ExpertMesh> {};

TEST_P(ExpertMeshes, AgreeWithOneRank) {
  const ExpertMesh& mesh = GetParam();
  const ShortRun one = short_run(one_rank(), 4);
  const ShortRun run = short_run_on_ranks(mesh.ranks(), with(kExperts, mesh.overrides()), 4);
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

TEST_P(ExpertMeshes, AgreeOnSkewedRouting) {
  const ExpertMesh& mesh = GetParam();
  const ShortRun one = skewed_run(1, one_rank());
  const ShortRun run = skewed_run(mesh.ranks(), with(kExperts, mesh.overrides()));
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i] / one.losses[i], 1, 5e-6) << "loss of step " << i + 1;
    EXPECT_NEAR(run.grad_norms[i] / one.grad_norms[i], 1, 2e-5) << "norm of step " << i + 1;
  }
}

// The tokens of an expert are counted over all ranks before the auxiliary loss reads them.
TEST_P(ExpertMeshes, AgreeOnTheLossesOfRouters) {
  const ExpertMesh& mesh = GetParam();
  const Overrides losses = {"--training.router_aux_loss=0.5", "--training.router_z_loss=0.05"};
  const ShortRun plain = skewed_run(1, one_rank());
  const ShortRun one = skewed_run(1, with(one_rank(), losses));
  const ShortRun run = skewed_run(mesh.ranks(), with(with(kExperts, mesh.overrides()), losses));
  EXPECT_GT(one.losses[0], plain.losses[0] + 1);
  EXPECT_GT(std::fabs(one.grad_norms[0] / plain.grad_norms[0] - 1), 1e-3);
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i] / one.losses[i], 1, 5e-6) << "loss of step " << i + 1;
    EXPECT_NEAR(run.grad_norms[i] / one.grad_norms[i], 1, 2e-5) << "norm of step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExpertMeshes, testing::ValuesIn(kMeshes),
                         [](const auto& test) { return test.param.name; });

struct SameBits {
  std::string name;
  std::vector<ExpertMesh> meshes;
};

class ExpertBits : public testing::TestWithParam<SameBits> {};

// The sum over the sources of a rank is the lowest level of the tree over all ranks, and the
// outputs of a token's experts are added in the order of its choices.
TEST_P(ExpertBits, DoNotDependOnTheRanksThatShareExperts) {
  const std::vector<ExpertMesh>& meshes = GetParam().meshes;
  const auto run = [](const ExpertMesh& mesh) {
    return short_run_on_ranks(mesh.ranks(), with(kExperts, mesh.overrides()), 3);
  };
  const ShortRun expected = run(meshes.front());
  EXPECT_NE(expected.losses.front(), expected.losses.back());
  const auto skewed = [](const ExpertMesh& mesh) {
    return skewed_run(mesh.ranks(), with(kExperts, mesh.overrides()));
  };
  const ShortRun expected_skewed = skewed(meshes.front());
  for (const ExpertMesh& mesh : meshes) {
    EXPECT_TRUE(run(mesh) == expected) << mesh.ep;
    EXPECT_TRUE(skewed(mesh) == expected_skewed) << mesh.ep;
  }
}

const SameBits kSameBits[] = {
    {"fsdp4",
     {{.name = "", .shard = 4},
      {.name = "", .shard = 4, .ep = 2},
      {.name = "", .shard = 4, .ep = 4},
      {.name = "", .shard = 4, .ep = 4, .more = {"--activation_checkpoint.mode=full"}},
      {.name = "", .shard = 4, .ep = 2, .more = {"--compile.overlap=false"}},
      {.name = "", .shard = 4, .ep = 2, .more = {"--compile.bucketing=none"}}}},
    {"accumulating",
     {{.name = "", .shard = 4, .more = kAccumulate},
      {.name = "", .shard = 4, .ep = 2, .more = kAccumulate},
      {.name = "", .shard = 4, .ep = 4, .more = kAccumulate}}},
    {"fsdp2_cp2",
     {{.name = "", .shard = 2, .cp = 2},
      {.name = "", .shard = 2, .cp = 2, .ep = 2},
      {.name = "", .shard = 2, .cp = 2, .ep = 4}}},
    {"hsdp",
     {{.name = "", .replicate = 2, .shard = 2}, {.name = "", .replicate = 2, .shard = 2, .ep = 2}}},
    {"fsdp2_tp2",
     {{.name = "", .shard = 2, .tp = 2, .ep = 2}, {.name = "", .shard = 2, .tp = 2, .ep = 4}}},
};
INSTANTIATE_TEST_SUITE_P(Ranks, ExpertBits, testing::ValuesIn(kSameBits),
                         [](const auto& test) { return test.param.name; });

// With room for a quarter of an even load every step is run again, on the worst case; with room for
// more than all rows none is. The bits are those without a limit.
TEST(ExpertReplay, KeepsTheBits) {
  for (const Overrides& more : {Overrides{}, kAccumulate}) {
    const ExpertMesh mesh{.name = "", .shard = 4, .ep = 4, .more = more};
    const Overrides unlimited = with(kExperts, mesh.overrides());
    const ShortRun expected = skewed_run(4, unlimited);
    for (const std::string factor : {"0.25", "1.5", "3.9"}) {
      const std::string key = "--parallelism.expert_capacity_factor=" + factor;
      EXPECT_TRUE(skewed_run(4, with(unlimited, {key})) == expected) << factor;
    }
  }
}

// Rows are lost on purpose, and counted; other steps do not change.
TEST(ExpertReplay, DroppedRowsAreCounted) {
  const ExpertMesh mesh{.name = "", .shard = 4, .ep = 4};
  const Overrides drop =
      with(with(kExperts, mesh.overrides()),
           {"--parallelism.expert_capacity_factor=0.25", "--parallelism.expert_overflow=drop"});
  const PreparedRun prepared = prepare_run(4, drop);
  on_ranks(prepared, [&](Communicator& comm) {
    Session session(prepared.config, prepared.compiled, comm);
    set_weights(prepared, session);
    const auto fill = [&](int64_t, Batch& batch) {
      batch.tokens.assign(16, 3);
      batch.targets.assign(16, 4);
    };
    const StepResult result = session.train_step({.step = 0, .seed = 5, .lr = 1e-3}, fill);
    // All tokens are alike: 16 tokens on each of 4 ranks choose three experts in two layers, and
    // there is room for 3 rows per source and destination.
    EXPECT_GT(result.experts->lost, 0);
    EXPECT_LE(result.experts->lost, 4 * 2 * 16 * 3 - 4 * 2 * 3);
    EXPECT_FALSE(result.experts->replayed);
    EXPECT_GE(result.grad_norm, 0);
  });
}

// The biases of routers follow the tokens of all ranks and micro-batches.
TEST(ExpertBalance, BiasesAreThoseOfOneRank) {
  const Overrides model = {
      "--model.name=deepseek_v3",         "--model.flavor=debug",  "--model.n_layers=3",
      "--model.vocab_size=251",           "--training.seq_len=16", "--training.global_batch_size=8",
      "--optimizer.expert_bias_rate=0.01"};
  const auto biases = [&](const ShortRun& run, const PreparedRun& prepared) {
    std::vector<float> values;
    size_t at = 0;
    for (const ParamInfo& param : prepared.compiled.params) {
      const auto size = static_cast<size_t>(count(param.shape));
      if (!param.trained) {
        for (size_t i = 0; i < size; ++i) values.push_back(run.params[at + i]);
      }
      at += size;
    }
    return values;
  };
  const Overrides alone = with(model, {"--training.local_batch_size=4"});
  const std::vector<float> expected = biases(short_run(alone, 3), prepare_run(1, alone));
  ASSERT_EQ(expected.size(), 2U * 8);
  EXPECT_NE(expected, std::vector<float>(16, 0.0F));
  for (const int64_t ep : {1, 2, 4}) {
    const Overrides shared = with(
        model, {"--training.local_batch_size=1", cat("--parallelism.expert_parallel_degree=", ep)});
    const ShortRun run = short_run_on_ranks(4, shared, 3);
    EXPECT_EQ(biases(run, prepare_run(4, shared)), expected) << ep;
  }
}

TEST(ExpertElastic, BitsHoldOverDataParallelRanks) {
  const Overrides elastic =
      with(kExperts, {"--training.local_batch_size=1", "--debug.deterministic=elastic",
                      "--debug.elastic_shards=8", "--training.global_batch_size=8",
                      "--parallelism.expert_parallel_degree=2"});
  const ShortRun expected = short_run_on_ranks(2, elastic);
  EXPECT_TRUE(short_run_on_ranks(4, elastic) == expected);
  EXPECT_TRUE(short_run_on_ranks(8, elastic) == expected);
}

}  // namespace
}  // namespace weft

// Training on meshes with tensor and context parallelism: every mesh agrees with one rank, and at
// fixed degrees the compiler's choices and the modes of data parallelism do not change a bit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "data/loader.h"
#include "plan/comm_volume.h"
#include "ranks/modes.h"
#include "runtime/comm/single_rank.h"
#include "support/short_run.h"
#include "train/session.h"

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

const std::string kRing = "--parallelism.context_parallel_method=ring";

struct MeshCase {
  std::string name;
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t tp = 1;
  Overrides more = {};
  int64_t cp = 1;

  int64_t ranks() const { return replicate * shard * cp * tp; }
  Overrides overrides() const {
    return with({cat("--parallelism.data_parallel_replicate_degree=", replicate),
                 cat("--parallelism.data_parallel_shard_degree=", shard),
                 cat("--parallelism.tensor_parallel_degree=", tp),
                 cat("--parallelism.context_parallel_degree=", cp),
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
    {.name = "cp2", .cp = 2},
    {.name = "cp4", .cp = 4},
    {.name = "fsdp2_cp2", .shard = 2, .cp = 2},
    {.name = "hsdp_cp2", .replicate = 2, .shard = 2, .cp = 2},
    {.name = "cp2_tp2", .tp = 2, .cp = 2},
    {.name = "fsdp2_cp2_tp2", .shard = 2, .tp = 2, .cp = 2},
    {.name = "cp2_tp2_full_sequence",
     .tp = 2,
     .more = {"--parallelism.sequence_parallel=false"},
     .cp = 2},
    {.name = "cp2_chunks", .more = {"--training.loss_chunks=4"}, .cp = 2},
    {.name = "cp2_tp2_chunks", .tp = 2, .more = {"--training.loss_chunks=4"}, .cp = 2},
    {.name = "zero1_cp2", .shard = 2, .more = {"--parallelism.zero_stage=1"}, .cp = 2},
    {.name = "accumulating_cp2",
     .shard = 2,
     .more = {"--training.local_batch_size=1", cat("--training.global_batch_size=", kBatch)},
     .cp = 2},
    {.name = "ring2", .more = {kRing}, .cp = 2},
    {.name = "ring4", .more = {kRing}, .cp = 4},
    {.name = "fsdp2_ring2", .shard = 2, .more = {kRing}, .cp = 2},
    {.name = "ring2_tp2", .tp = 2, .more = {kRing}, .cp = 2},
    {.name = "accumulating_ring2",
     .shard = 2,
     .more = {kRing, "--training.local_batch_size=1", cat("--training.global_batch_size=", kBatch)},
     .cp = 2},
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

// Kinds of steps that change what is sent: other dtypes, and sequences that the degrees do not
// divide. These are padded for cp, so that the dropout of a token is another one.
TEST_P(MeshSteps, AgreeWithOneRank) {
  const auto& [name, overrides, tolerance] = GetParam();
  for (const MeshCase& mesh : {MeshCase{"", 1, 2, 2}, MeshCase{.name = "", .shard = 2, .cp = 2},
                               MeshCase{.name = "", .more = {kRing}, .cp = 4}}) {
    for (const Overrides& model : {with(kGpt2, {"--model.dropout=0"}), kLlama}) {
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

// Biases other than 0, norm weights other than 1, documents that cross shards, and targets that are
// ignored mostly on some ranks: errors in these do not show with initial weights and full batches.
ShortRun uneven_run(int64_t ranks, const Overrides& overrides) {
  const PreparedRun prepared = prepare_run(
      ranks, with(overrides, {"--training.document_mask=true", "--training.dataset=file",
                              "--training.dataset_path=unused"}));
  const int64_t length = prepared.config.training.seq_len;
  const auto fill = [&](int64_t first, Batch& batch) {
    const int64_t tokens = prepared.config.training.local_batch_size * length;
    batch.tokens.clear();
    batch.targets.clear();
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t sample = first + i / length, t = i % length;
      batch.tokens.push_back(
          t % (5 + sample) == 4 ? 1 : static_cast<int32_t>(2 + (t * t + 7 * sample) % 60));
      const bool ignored = t < 3 * sample || (t + sample) % 5 == 0;
      batch.targets.push_back(ignored ? -1 : static_cast<int32_t>((t * 7 + sample) % 60));
    }
    batch.positions = document_positions(batch.tokens, length, 1);
  };
  ShortRun run;
  const auto train = [&](Communicator& comm) {
    Session session(prepared.config, prepared.compiled, comm);
    session.set_params([](size_t param, int64_t first, std::span<float> values) {
      for (size_t i = 0; i < values.size(); ++i) {
        const auto at = static_cast<double>(first + static_cast<int64_t>(i) + 17 * (param + 1));
        values[i] = static_cast<float>(0.3 * std::sin(0.7 * at) + (param % 3 == 0 ? 0.1 : 0));
      }
    });
    for (int64_t step = 0; step < 2; ++step) {
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

TEST_P(Mesh, AgreesOnUnevenData) {
  const MeshCase& mesh = std::get<1>(GetParam());
  const ShortRun one = uneven_run(1, with(model(), {cat("--training.local_batch_size=", kBatch)}));
  const ShortRun run = uneven_run(mesh.ranks(), with(model(), mesh.overrides()));
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i] / one.losses[i], 1, 5e-6) << "loss of step " << i + 1;
    EXPECT_NEAR(run.grad_norms[i] / one.grad_norms[i], 1, 2e-5) << "norm of step " << i + 1;
  }
}

struct KeyHeads {
  int64_t heads, kv_heads;
};

class MeshKeyHeads : public testing::TestWithParam<std::tuple<KeyHeads, MeshCase>> {};

// Key heads that the degree does not divide are repeated. With 12 heads and 6 key heads on 4 ranks,
// the key heads of two ranks overlap.
TEST_P(MeshKeyHeads, AreRepeatedWhereTheDegreeDoesNotDivideThem) {
  const auto& [heads, mesh] = GetParam();
  const Overrides model =
      with(kLlama, {cat("--model.dim=", 8 * heads.heads), cat("--model.n_heads=", heads.heads),
                    cat("--model.n_kv_heads=", heads.kv_heads), "--model.ffn_dim=40"});
  const Overrides alone = {cat("--training.local_batch_size=", kBatch)};
  const std::pair<ShortRun, ShortRun> runs[] = {
      {short_run(with(model, alone)),
       short_run_on_ranks(mesh.ranks(), with(model, mesh.overrides()))},
      {uneven_run(1, with(model, alone)), uneven_run(mesh.ranks(), with(model, mesh.overrides()))}};
  for (const auto& [one, run] : runs) {
    for (size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(run.losses[i] / one.losses[i], 1, 5e-6) << "loss of step " << i + 1;
      EXPECT_NEAR(run.grad_norms[i] / one.grad_norms[i], 1, 2e-5) << "norm of step " << i + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, MeshKeyHeads,
    testing::Combine(
        testing::Values(KeyHeads{8, 2}, KeyHeads{12, 6}, KeyHeads{4, 1}),
        testing::Values(
            MeshCase{"tp4", 1, 1, 4}, MeshCase{"fsdp2_tp4", 1, 2, 4},
            MeshCase{"tp4_full_sequence", 1, 1, 4, {"--parallelism.sequence_parallel=false"}},
            MeshCase{"ddp2_tp4_zero1", 2, 1, 4, {"--parallelism.zero_stage=1"}},
            MeshCase{.name = "cp2_tp4", .tp = 4, .cp = 2},
            MeshCase{.name = "accumulating_tp4",
                     .tp = 4,
                     .more = {"--training.local_batch_size=1",
                              cat("--training.global_batch_size=", kBatch),
                              "--activation_checkpoint.mode=full"}})),
    [](const auto& test) {
      const KeyHeads& heads = std::get<0>(test.param);
      return cat("heads", heads.heads, "_keys", heads.kv_heads, "_", std::get<1>(test.param).name);
    });

TEST(MeshKeyHeadsInBfloat16, AgreeWithOneRank) {
  const Overrides model =
      with(kLlama, {"--model.n_kv_heads=1", "--training.mixed_precision_param=bfloat16"});
  const ShortRun one = short_run(with(model, {cat("--training.local_batch_size=", kBatch)}));
  const ShortRun run = short_run_on_ranks(8, with(model, MeshCase{"", 1, 2, 4}.overrides()));
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i] / one.losses[i], 1, 1e-3) << "loss of step " << i + 1;
    EXPECT_NEAR(run.grad_norms[i] / one.grad_norms[i], 1, 2e-2) << "norm of step " << i + 1;
  }
}

// Sums over tp and cp come first in every micro-batch, so at a fixed degree the tree over
// micro-batches does not depend on the data-parallel ranks.
TEST(MeshElastic, BitsHoldOverDataParallelRanks) {
  const std::string tensor = "--parallelism.tensor_parallel_degree=2";
  const std::string context = "--parallelism.context_parallel_degree=2";
  for (const Overrides& axis : {Overrides{tensor}, Overrides{context}, Overrides{context, kRing}}) {
    const Overrides elastic =
        with(with(kLlama, axis), {"--training.local_batch_size=1", "--debug.deterministic=elastic",
                                  "--debug.elastic_shards=4"});
    const ShortRun expected = short_run_on_ranks(2, elastic);
    for (const int64_t ranks : {4, 8}) {
      EXPECT_TRUE(short_run_on_ranks(ranks, elastic) == expected)
          << join(axis, " ") << ", " << ranks;
    }
  }
}

class MeshChoices : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(MeshChoices, KeepTheBits) {
  const auto& [name, axis] = GetParam();
  const Overrides& model = name == "gpt2" ? kGpt2 : kLlama;
  MeshCase ddp{.name = "", .replicate = 2}, fsdp{.name = "", .shard = 2};
  for (MeshCase* mesh : {&ddp, &fsdp}) {
    (axis == "tp" ? mesh->tp : mesh->cp) = 2;
    if (axis == "ring") mesh->more = {kRing};
  }
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

INSTANTIATE_TEST_SUITE_P(Ranks, MeshChoices,
                         testing::Combine(testing::Values("gpt2", "llama"),
                                          testing::Values("tp", "cp", "ring")),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param));
                         });

class MeshChunks : public testing::TestWithParam<std::tuple<std::string, MeshCase>> {};

// A row of a matmul has the same bits in any chunk, and sums over rows are not divided. Chunks of
// one and of three tokens per rank are no multiple of the tiles of a kernel.
TEST_P(MeshChunks, KeepTheBits) {
  const auto& [name, mesh] = GetParam();
  const Overrides model =
      with(with(name == "gpt2" ? kGpt2 : kLlama, {"--training.seq_len=24"}), mesh.overrides());
  const auto chunks = [](int64_t n) {
    return cat("--parallelism.async_tensor_parallel_chunks=", n);
  };
  const std::vector<Overrides> steps = {
      {}, {"--activation_checkpoint.mode=full"}, {"--training.mixed_precision_param=bfloat16"}};
  for (const Overrides& step : steps) {
    const Overrides base = with(model, step);
    const ShortRun expected = short_run_on_ranks(
        mesh.ranks(), with(base, {"--parallelism.enable_async_tensor_parallel=false",
                                  "--compile.overlap=false"}));
    const std::vector<Overrides> choices = {{"--parallelism.enable_async_tensor_parallel=false"},
                                            {},
                                            {chunks(2)},
                                            {chunks(2), "--compile.overlap=false"},
                                            {chunks(mesh.cp > 1 ? 3 : 6)}};
    for (const Overrides& choice : choices) {
      EXPECT_TRUE(short_run_on_ranks(mesh.ranks(), with(base, choice)) == expected)
          << join(step, " ") << " " << join(choice, " ");
    }
  }
}

// Each of a layer's four matmuls has a gather before it or a reduction after it, forward and
// backward; the head has one of each, and one backward.
TEST_P(MeshChunks, AreMadeOfEveryEdge) {
  const auto& [name, mesh] = GetParam();
  const Overrides model =
      with(with(name == "gpt2" ? kGpt2 : kLlama, {"--training.seq_len=24"}), mesh.overrides());
  const PreparedRun run =
      prepare_run(mesh.ranks(), with(model, {"--parallelism.async_tensor_parallel_chunks=2"}));
  int64_t matmuls = 0, halves = 0;
  for (const Step& step : run.compiled.plan.program(ProgramKind::Last)) {
    if (step.op != "matmul" || std::get<bool>(step.attrs.front())) continue;
    ++matmuls;
    halves += step.operands.front().shape.at(1) == 24 / mesh.cp / 2 ? 1 : 0;
  }
  EXPECT_EQ(matmuls, halves);
  EXPECT_EQ(halves, 2 * (2 * 8 + 2));
}

const MeshCase kChunkedMeshes[] = {
    {"tp2", 1, 1, 2},
    {"tp4", 1, 1, 4},
    {"fsdp2_tp2", 1, 2, 2},
    {.name = "cp2_tp2", .tp = 2, .cp = 2},
};
INSTANTIATE_TEST_SUITE_P(Ranks, MeshChunks,
                         testing::Combine(testing::Values("gpt2", "llama"),
                                          testing::ValuesIn(kChunkedMeshes)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param).name);
                         });

// The tokens of a rank are its own, as is its part of what the blocks keep.
TEST(MeshMemory, ContextParallelismSharesTheTokens) {
  const auto activations = [](const Overrides& more) {
    const PreparedRun run =
        prepare_run(4, with(with(kLlama, {"--model.n_layers=12", "--training.seq_len=256"}), more));
    return run.compiled.plan.arena_bytes - run.compiled.plan.persistent_bytes;
  };
  const int64_t batch = activations({"--training.local_batch_size=1"});
  const int64_t context =
      activations({"--parallelism.context_parallel_degree=4", "--training.local_batch_size=4"});
  EXPECT_LT(std::fabs(static_cast<double>(context) / static_cast<double>(batch) - 1), 0.25);
}

// One layer with batch 4, sequence 16, width 64, 8 heads and 4 kv heads of 8, ffn 96 and vocabulary
// 128. Per rank an activation of the rank's samples has 8192 bytes, and half of it is sent over two
// ranks.
TEST(MeshBytes, AreThoseOfOneLayer) {
  const Overrides layer = {"--model.name=llama",    "--model.flavor=debug",
                           "--model.dim=64",        "--model.n_heads=8",
                           "--model.n_kv_heads=4",  "--model.n_layers=1",
                           "--model.ffn_dim=96",    "--model.vocab_size=128",
                           "--training.seq_len=16", "--training.local_batch_size=2"};
  const auto sent = [&](const std::string& axis, const Overrides& more) {
    const PreparedRun run = prepare_run(4, with(layer, more));
    std::map<std::string, int64_t> bytes;
    for (const CollectiveVolume& volume :
         collective_volumes(run.compiled.plan, ProgramKind::Last)) {
      if (volume.axis == axis) bytes[volume.kind] += volume.sent_bytes;
    }
    return bytes;
  };
  using Bytes = std::map<std::string, int64_t>;
  // Eight gathers of activations, two of them repeated, and one of the statistics of the loss; six
  // reductions. The norms of gradients are reduced over tp too.
  Bytes tp = sent("tp", {"--parallelism.tensor_parallel_degree=2"});
  EXPECT_EQ(tp["all_gather"], 8 * 4096 + 384);
  EXPECT_EQ(tp["reduce_scatter"], 6 * 4096);
  Bytes full = sent(
      "tp", {"--parallelism.tensor_parallel_degree=2", "--parallelism.sequence_parallel=false"});
  EXPECT_EQ(full["all_gather"], 384);
  EXPECT_GE(full["all_reduce"], 12 * 4096);
  EXPECT_LT(full["all_reduce"], 12 * 4096 + 256);
  Bytes repeated =
      sent("tp", {"--parallelism.tensor_parallel_degree=2", "--activation_checkpoint.mode=full"});
  EXPECT_EQ(repeated["all_gather"], 8 * 4096 + 384);
  EXPECT_EQ(repeated["reduce_scatter"], 7 * 4096);
  // Keys and values forward and backward; their gradients.
  Bytes cp = sent("cp", {"--parallelism.context_parallel_degree=2"});
  EXPECT_EQ(cp["all_gather"], 2 * 4096);
  EXPECT_EQ(cp["reduce_scatter"], 4096);
  // The same bytes around a ring: a block of keys and values has 4096.
  Bytes ring = sent("cp", {"--parallelism.context_parallel_degree=2", kRing});
  EXPECT_EQ(ring["shift"], 3 * 4096);
  EXPECT_FALSE(ring.contains("all_gather"));
  EXPECT_FALSE(ring.contains("reduce_scatter"));
  // Of four ranks, each has half the tokens of twice as many samples.
  Bytes ring4 = sent(
      "cp", {"--parallelism.context_parallel_degree=4", kRing, "--training.local_batch_size=4"});
  EXPECT_EQ(ring4["shift"], 3 * 3 * 4096);
}

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

// A quarter of what one rank needs, and the chunks that are gathered.
TEST(MeshMemory, ActivationsOfLlama1BAreAQuarterOverFourRanks) {
  const auto activations = [](int64_t ranks, const Overrides& more) {
    const PreparedRun run = prepare_run(
        ranks, with({"--model.name=llama", "--model.flavor=1B", "--training.seq_len=4096",
                     "--training.mixed_precision_param=bfloat16", "--device.backend=null"},
                    more));
    return static_cast<double>(run.compiled.plan.arena_bytes - run.compiled.plan.persistent_bytes);
  };
  const double one = activations(1, {});
  const double shared = activations(4, {"--parallelism.tensor_parallel_degree=4"});
  EXPECT_LT(shared, 1.05 * one / 4);
}

}  // namespace
}  // namespace weft

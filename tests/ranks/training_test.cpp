// Sharded training on ranks that are threads: whatever the mode, the bucketing, the overlap and the
// recompute, the same ranks and micro-batches give the same bits.
#include <gtest/gtest.h>

#include <cmath>

#include "support/short_run.h"

namespace weft {
namespace {

using Overrides = std::vector<std::string>;

Overrides with(Overrides overrides, const Overrides& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

const Overrides kTiny = {"--model.name=gpt2", "--model.n_layers=3", "--model.dropout=0.1",
                         "--training.local_batch_size=2", "--training.seq_len=8"};

Overrides mode(const std::string& name, int64_t ranks) {
  if (name == "ddp") {
    return {"--parallelism.data_parallel_replicate_degree=" + std::to_string(ranks),
            "--parallelism.data_parallel_shard_degree=1"};
  }
  if (name == "zero1") return {"--parallelism.zero_stage=1"};
  if (name == "zero2") return {"--parallelism.fsdp_reshard_after_forward=never"};
  if (name == "hsdp") {
    return {"--parallelism.data_parallel_replicate_degree=2",
            "--parallelism.data_parallel_shard_degree=" + std::to_string(ranks / 2)};
  }
  return {};
}

class Ranks : public testing::TestWithParam<int64_t> {};

TEST_P(Ranks, EveryModeHasTheBitsOfDdp) {
  const int64_t ranks = GetParam();
  const ShortRun ddp = short_run_on_ranks(ranks, with(kTiny, mode("ddp", ranks)));
  for (double loss : ddp.losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_NE(ddp.losses[0], ddp.losses[2]);
  for (const char* name : {"fsdp", "zero1", "zero2", "hsdp"}) {
    // Groups that are no power of two add up in another order inside than over all ranks.
    if (std::string(name) == "hsdp" && ranks % 4 != 0) continue;
    SCOPED_TRACE(name);
    EXPECT_EQ(short_run_on_ranks(ranks, with(kTiny, mode(name, ranks))), ddp);
  }
}

TEST_P(Ranks, BucketingOverlapAndRecomputeKeepBits) {
  const int64_t ranks = GetParam();
  const ShortRun plain = short_run_on_ranks(
      ranks, with(kTiny, {"--compile.bucketing=none", "--compile.overlap=false"}));
  for (const char* bucketing : {"none", "transformer_block", "size", "auto"}) {
    for (const char* overlap : {"true", "false"}) {
      for (const char* reshard : {"always", "never"}) {
        for (const char* recompute : {"none", "full"}) {
          SCOPED_TRACE(std::string(bucketing) + " overlap " + overlap + " reshard " + reshard +
                       " recompute " + recompute);
          const Overrides options = {
              std::string("--compile.bucketing=") + bucketing,
              std::string("--compile.overlap=") + overlap,
              std::string("--parallelism.fsdp_reshard_after_forward=") + reshard,
              std::string("--activation_checkpoint.mode=") + recompute};
          EXPECT_EQ(short_run_on_ranks(ranks, with(kTiny, options), 2).losses,
                    std::vector<double>(plain.losses.begin(), plain.losses.begin() + 2));
        }
      }
    }
  }
}

TEST_P(Ranks, AccumulationReducedEveryTimeOrOnce) {
  const int64_t ranks = GetParam();
  const std::string global = "--training.global_batch_size=" + std::to_string(4 * ranks);
  for (const char* every : {"true", "false"}) {
    SCOPED_TRACE(every);
    const Overrides accumulate = {global,
                                  std::string("--training.reduce_every_micro_batch=") + every};
    const ShortRun fsdp = short_run_on_ranks(ranks, with(kTiny, accumulate));
    const ShortRun ddp =
        short_run_on_ranks(ranks, with(with(kTiny, accumulate), mode("ddp", ranks)));
    EXPECT_EQ(fsdp, ddp);
  }
}

TEST_P(Ranks, MixedPrecision) {
  const int64_t ranks = GetParam();
  const Overrides bf16 = {"--training.mixed_precision_param=bfloat16"};
  EXPECT_EQ(short_run_on_ranks(ranks, with(kTiny, bf16)),
            short_run_on_ranks(ranks, with(with(kTiny, bf16), mode("ddp", ranks))));
}

INSTANTIATE_TEST_SUITE_P(All, Ranks, testing::Values(2, 3, 4),
                         [](const auto& test) { return "On" + std::to_string(test.param); });

TEST(Ranks, EightHaveTheSameBitsInEveryMode) {
  const ShortRun ddp = short_run_on_ranks(8, with(kTiny, mode("ddp", 8)), 2);
  EXPECT_EQ(short_run_on_ranks(8, with(kTiny, mode("fsdp", 8)), 2), ddp);
  EXPECT_EQ(short_run_on_ranks(8, with(kTiny, mode("hsdp", 8)), 2), ddp);
}

// Sums over ranks are trees over rank gradients where one process sums over rows: another order.
TEST(Ranks, AgreeWithOneProcess) {
  const ShortRun one = short_run({"--model.name=gpt2", "--model.n_layers=3", "--model.dropout=0.1",
                                  "--training.local_batch_size=8", "--training.seq_len=8"});
  const ShortRun four = short_run_on_ranks(4, kTiny);
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(four.losses[i] / one.losses[i], 1, 1e-6);
    EXPECT_NEAR(four.grad_norms[i] / one.grad_norms[i], 1, 1e-5);
  }
  EXPECT_LT(four.arena_bytes, one.arena_bytes);
}

TEST(Ranks, AGroupOfOneIsTheSameAsNoGroup) {
  EXPECT_EQ(short_run_on_ranks(1, with(kTiny, {"--parallelism.data_parallel_shard_degree=1"})),
            short_run(kTiny));
}

}  // namespace
}  // namespace weft

// Elastic runs on ranks that are threads: losses, gradient norms and parameters do not depend on
// the number of ranks, the mode, how micro-batches are split or when they are reduced.
#include <gtest/gtest.h>

#include <cmath>

#include "ranks/modes.h"
#include "support/short_run.h"

namespace weft {
namespace {

const Overrides kElastic =
    with(kTiny, {"--debug.deterministic=elastic", "--debug.elastic_shards=8"});
const Overrides kOnce = {"--training.reduce_every_micro_batch=false"};

// One rank that accumulates all eight micro-batches; every other run is compared with it.
const ShortRun& one_rank() {
  static const ShortRun run = short_run(kElastic);
  return run;
}

// Every mode on this many ranks, reducing in each micro-batch or once, where both are possible.
std::vector<Overrides> runs_on(int64_t ranks) {
  std::vector<Overrides> runs;
  std::vector<std::string> names = modes(ranks);
  names.emplace_back("ddp");
  for (const std::string& name : names) {
    runs.push_back(mode(name, ranks));
    if (ranks > 1 && ranks < 8 && name != "zero1") runs.push_back(with(mode(name, ranks), kOnce));
  }
  return runs;
}

class Elastic : public testing::TestWithParam<int64_t> {};

TEST_P(Elastic, EveryModeHasTheBitsOfOneRank) {
  const int64_t ranks = GetParam();
  for (const Overrides& run : runs_on(ranks)) {
    for (const Overrides& variant :
         {Overrides{}, {"--compile.bucketing=none", "--compile.overlap=false"}}) {
      SCOPED_TRACE(join(with(run, variant), " "));
      EXPECT_EQ(short_run_on_ranks(ranks, with(with(kElastic, run), variant)), one_rank());
    }
  }
}

TEST_P(Elastic, RecomputeAndLargeBucketsKeepBits) {
  const int64_t ranks = GetParam();
  for (const char* bucketing : {"size", "auto"}) {
    const Overrides run = {std::string("--compile.bucketing=") + bucketing,
                           "--parallelism.fsdp_reshard_after_forward=always",
                           "--activation_checkpoint.mode=full"};
    SCOPED_TRACE(bucketing);
    EXPECT_EQ(short_run_on_ranks(ranks, with(kElastic, run)), one_rank());
  }
}

TEST_P(Elastic, DocumentsKeptApart) {
  const Overrides documents = with(
      kElastic,
      {"--training.dataset=file", "--training.dataset_path=none", "--training.document_mask=true"});
  const ShortRun one = short_run(documents);
  EXPECT_NE(one, one_rank());
  EXPECT_EQ(short_run_on_ranks(GetParam(), documents), one);
}

TEST_P(Elastic, MixedPrecision) {
  const int64_t ranks = GetParam();
  const Overrides bf16 = with(kElastic, {"--training.mixed_precision_param=bfloat16"});
  const ShortRun one = short_run(bf16);
  EXPECT_NE(one.losses, one_rank().losses);
  EXPECT_EQ(short_run_on_ranks(ranks, bf16), one);
  if (ranks < 8) {
    EXPECT_EQ(short_run_on_ranks(ranks, with(bf16, kOnce)), one);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Elastic, testing::Values(2, 4, 8),
                         [](const auto& test) { return "On" + std::to_string(test.param); });

TEST(Elastic, AGroupOfOneHasTheBitsOfNoGroup) {
  EXPECT_EQ(short_run_on_ranks(1, with(kElastic, {"--parallelism.data_parallel_shard_degree=1"})),
            one_rank());
}

TEST(Elastic, ShardsAreTheRanksOfAPlainRun) {
  for (double loss : one_rank().losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_EQ(short_run_on_ranks(8, kTiny), one_rank());
  EXPECT_EQ(short_run_on_ranks(4, kTiny),
            short_run(with(kTiny, {"--debug.deterministic=elastic", "--debug.elastic_shards=4"})));
}

// Why the mode exists: without it, a running sum gives other bits.
TEST(Elastic, ARunningSumHasOtherBits) {
  const ShortRun plain = short_run(with(kTiny, {"--training.global_batch_size=16"}));
  EXPECT_NE(plain.params, one_rank().params);
}

// One more gradient per doubling of a rank's micro-batches beyond two.
TEST(Elastic, MemoryGrowsByTheLevelsOfTheTree) {
  const auto arena = [](int64_t shards) {
    return short_run(with(kTiny, {"--debug.deterministic=elastic",
                                  cat("--debug.elastic_shards=", shards)}),
                     1)
        .arena_bytes;
  };
  const int64_t two = arena(2);
  const int64_t plain = short_run(with(kTiny, {"--training.global_batch_size=4"}), 1).arena_bytes;
  const int64_t level = arena(4) - two;
  EXPECT_GE(level, static_cast<int64_t>(one_rank().params.size() * sizeof(float)));
  EXPECT_EQ(arena(8) - two, 2 * level);
  EXPECT_NEAR(static_cast<double>(two - plain), 0, 512);  // the sum of the loss
}

}  // namespace
}  // namespace weft

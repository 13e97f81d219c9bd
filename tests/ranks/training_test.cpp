// Sharded training on ranks that are threads: with the same ranks and micro-batches every mode
// gives the same bits, for every kind of step. combinations_test.cpp crosses modes with the
// compiler's choices.
#include <gtest/gtest.h>

#include <cmath>

#include "ranks/modes.h"
#include "support/short_run.h"

namespace weft {
namespace {

class Ranks : public testing::TestWithParam<int64_t> {
 protected:
  // Every mode against DDP.
  void expect_same_bits(const Overrides& options) {
    const int64_t ranks = GetParam();
    const ShortRun ddp = short_run_on_ranks(ranks, with(options, mode("ddp", ranks)));
    for (double loss : ddp.losses) EXPECT_TRUE(std::isfinite(loss));
    EXPECT_NE(ddp.losses.front(), ddp.losses.back());
    for (const std::string& name : modes(ranks)) {
      EXPECT_TRUE(short_run_on_ranks(ranks, with(options, mode(name, ranks))) == ddp) << name;
    }
  }

  Overrides micro_batches(int64_t count) const {
    return {cat("--training.global_batch_size=", count * 2 * GetParam())};
  }
};

TEST_P(Ranks, DropoutAndATiedHead) {
  expect_same_bits(kTiny);
}

TEST_P(Ranks, BrainFloats) {
  expect_same_bits(with(kTiny, {"--training.mixed_precision_param=bfloat16"}));
}

TEST_P(Ranks, LlamaWithAHeadOfItsOwn) {
  expect_same_bits({"--model.name=llama", "--model.flavor=debug", "--model.dim=16",
                    "--model.n_layers=2", "--model.n_heads=2", "--model.n_kv_heads=1",
                    "--model.ffn_dim=40", "--training.local_batch_size=2", "--training.seq_len=8"});
}

// Biases of three elements: most ranks hold only padding.
TEST_P(Ranks, ParametersOfThreeElements) {
  for (const char* bucketing : {"none", "transformer_block"}) {
    expect_same_bits({"--model.name=gpt2", "--model.dim=3", "--model.n_heads=1",
                      "--model.vocab_size=7", "--model.max_seq_len=8",
                      "--training.local_batch_size=2", "--training.seq_len=8",
                      cat("--compile.bucketing=", bucketing)});
  }
}

// Reducing every time adds over ranks first, reducing once over micro-batches first: two orders,
// each the same in all modes. ZeRO-1 always reduces once.
TEST_P(Ranks, MicroBatchesReducedEveryTimeOrOnce) {
  const int64_t ranks = GetParam();
  for (const char* precision : {"float32", "bfloat16"}) {
    SCOPED_TRACE(precision);
    const Overrides several =
        with(with(kTiny, micro_batches(3)), {cat("--training.mixed_precision_param=", precision)});
    const Overrides once = with(several, {"--training.reduce_every_micro_batch=false"});
    const auto run = [&](const Overrides& options, const std::string& name) {
      return short_run_on_ranks(ranks, with(options, mode(name, ranks)));
    };
    const ShortRun ddp = run(several, "ddp");
    const ShortRun ddp_once = run(once, "ddp");
    EXPECT_NE(ddp.params, ddp_once.params);
    EXPECT_TRUE(run(several, "zero1") == ddp_once);
    for (const std::string& name : modes(ranks)) {
      if (name == "zero1") continue;
      EXPECT_TRUE(run(several, name) == ddp) << name;
      EXPECT_TRUE(run(once, name) == ddp_once) << name << " once";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Ranks, testing::Values(2, 3, 4, 8),
                         [](const auto& test) { return "On" + std::to_string(test.param); });

// Sums over ranks are trees over per-rank gradients, while one process sums over rows: another
// order.
TEST(Ranks, AgreeWithOneProcess) {
  const ShortRun one = short_run(with(kTiny, {"--training.local_batch_size=8"}));
  const ShortRun four = short_run_on_ranks(4, kTiny);
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(four.losses[i] / one.losses[i], 1, 1e-6);
    EXPECT_NEAR(four.grad_norms[i] / one.grad_norms[i], 1, 1e-5);
  }
  EXPECT_LT(four.arena_bytes, one.arena_bytes);
}

TEST(Ranks, AGroupOfOneIsTheSameAsNoGroup) {
  for (const Overrides& options : std::vector<Overrides>{
           {}, {"--training.global_batch_size=6"}, {"--training.mixed_precision_param=bfloat16"}}) {
    const ShortRun alone = short_run(with(kTiny, options));
    for (const char* name : {"zero1", "zero2", "fsdp"}) {
      EXPECT_TRUE(short_run_on_ranks(1, with(with(kTiny, options), mode(name, 1))) == alone)
          << name;
    }
  }
}

}  // namespace
}  // namespace weft

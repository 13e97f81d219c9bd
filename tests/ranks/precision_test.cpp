// Low precision on ranks that are threads: gradients reduced in bf16, and a loss scale that all
// ranks change together.
#include <gtest/gtest.h>

#include <cmath>

#include "ranks/modes.h"
#include "support/short_run.h"
#include "train/session.h"

namespace weft {
namespace {

const Overrides kFloat16 = {"--training.mixed_precision_param=float16"};
const Overrides kBf16Reduce = {"--training.mixed_precision_param=bfloat16",
                               "--training.mixed_precision_reduce=bfloat16"};

class LowPrecision : public testing::TestWithParam<int64_t> {
 protected:
  ShortRun run(const Overrides& precision, const std::string& name,
               const Overrides& more = {}) const {
    const Overrides options = with(with(kTiny, precision), mode(name, GetParam()));
    return short_run_on_ranks(GetParam(), with(options, more));
  }
};

TEST_P(LowPrecision, Float16HasTheSameBitsInEveryMode) {
  const ShortRun ddp = run(kFloat16, "ddp");
  for (double norm : ddp.grad_norms) EXPECT_TRUE(std::isfinite(norm));
  for (const std::string& name : modes(GetParam())) {
    SCOPED_TRACE(name);
    EXPECT_EQ(run(kFloat16, name), ddp);
  }
}

// The sum of a shard stays f32 in all stages of ZeRO.
TEST_P(LowPrecision, Bf16ReductionHasTheSameBitsInEveryStage) {
  const ShortRun fsdp = run(kBf16Reduce, "fsdp");
  EXPECT_EQ(run(kBf16Reduce, "zero1"), fsdp);
  EXPECT_EQ(run(kBf16Reduce, "zero2"), fsdp);
  EXPECT_EQ(run(kBf16Reduce, "fsdp", {"--compile.bucketing=none", "--compile.overlap=false"}),
            fsdp);
  EXPECT_NE(run({"--training.mixed_precision_param=bfloat16"}, "fsdp").params, fsdp.params);
}

// Without sharding, and across replicas, the sum is sent on and rounded to bf16 once more: an error
// of 2^-9 per gradient, far less in a loss.
TEST_P(LowPrecision, Bf16SumsThatAreSentOnAreCloseToThoseThatAreNot) {
  const ShortRun fsdp = run(kBf16Reduce, "fsdp");
  for (const char* name : {"ddp", "hsdp"}) {
    if (std::string(name) == "hsdp" && GetParam() != 4) continue;
    SCOPED_TRACE(name);
    const ShortRun sent_on = run(kBf16Reduce, name);
    EXPECT_EQ(sent_on.losses[0], fsdp.losses[0]);
    EXPECT_NE(sent_on.params, fsdp.params);
    for (size_t i = 0; i < fsdp.losses.size(); ++i) {
      EXPECT_NEAR(sent_on.losses[i] / fsdp.losses[i], 1, 1e-3);
      EXPECT_NEAR(sent_on.grad_norms[i] / fsdp.grad_norms[i], 1, 4e-3);
    }
  }
}

TEST_P(LowPrecision, Bf16ReductionWithAccumulation) {
  const Overrides every = {cat("--training.global_batch_size=", 4 * GetParam())};
  const Overrides once = with(every, {"--training.reduce_every_micro_batch=false"});
  const ShortRun fsdp = run(kBf16Reduce, "fsdp", once);
  // Stage 1 of ZeRO always reduces once.
  EXPECT_EQ(run(kBf16Reduce, "zero1", every), fsdp);
  const ShortRun others[] = {run(kBf16Reduce, "fsdp", every), run(kBf16Reduce, "ddp", once)};
  for (const ShortRun& other : others) {
    EXPECT_NE(other.params, fsdp.params);
    for (size_t i = 0; i < fsdp.losses.size(); ++i) {
      EXPECT_NEAR(other.losses[i] / fsdp.losses[i], 1, 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LowPrecision, testing::Values(2, 4),
                         [](const auto& test) { return "On" + std::to_string(test.param); });

TEST(LowPrecision, AGroupOfOneRoundsLikeNoGroup) {
  const Overrides options = with(kTiny, kBf16Reduce);
  EXPECT_EQ(short_run_on_ranks(1, with(options, mode("fsdp", 1))), short_run(options));
}

// The state of one rank after some steps.
struct Outcome {
  std::vector<double> norms;
  std::vector<float> params;
  double scale = 0;
  int32_t good = 0;
  int32_t updates = 0;
};

// Steps `first` to 4 on two ranks. In step 0 only the second one has targets, so that only its
// gradients can overflow.
std::vector<Outcome> run_two(const Overrides& overrides, int64_t first) {
  const PreparedRun prepared = prepare_run(2, overrides);
  std::vector<Outcome> outcomes(2);
  on_ranks(prepared, [&](Communicator& comm) {
    Outcome& outcome = outcomes[static_cast<size_t>(comm.rank())];
    Session session(prepared.config, prepared.compiled, comm);
    session.initialize(7);
    for (int64_t step = first; step < 4; ++step) {
      const StepResult result = session.train_step(
          {.step = step, .seed = 3, .lr = 1e-3}, [&](int64_t sample, Batch& batch) {
            batch.tokens.resize(16);
            batch.targets.resize(16);
            for (size_t i = 0; i < 16; ++i) {
              const int64_t token = (sample * 31 + step * 17 + static_cast<int64_t>(i)) % 200;
              batch.tokens[i] = static_cast<int32_t>(token);
              batch.targets[i] = step == 0 && comm.rank() == 0 ? -1 : batch.tokens[i] + 1;
            }
          });
      outcome.norms.push_back(result.grad_norm);
    }
    outcome.scale = session.loss_scale().value();
    session.executor().read("loss_scale.good", &outcome.good, sizeof outcome.good);
    session.executor().read("adam.count", &outcome.updates, sizeof outcome.updates);
    for (size_t i = 0; i < session.compiled().params.size(); ++i) {
      std::vector<float> values(static_cast<size_t>(count(session.compiled().params[i].shape)));
      session.read_param(i, values);
      outcome.params.insert(outcome.params.end(), values.begin(), values.end());
    }
  });
  return outcomes;
}

// The mode, and whether weights are kept in float16.
class Overflow : public testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(Overflow, OnOneRankIsSkippedByAll) {
  const auto& [name, keep] = GetParam();
  const Overrides options = with(with(kTiny, kFloat16), mode(name, 2));
  // 2^34 overflows, 2^10 does not.
  const std::vector<Outcome> found =
      run_two(with(options, {"--grad_scaler.init_scale=17179869184",
                             "--grad_scaler.backoff_factor=5.9604644775390625e-08",
                             cat("--training.keep_low_precision=", keep ? "true" : "false")}),
              0);
  // The same without the step that overflows.
  const std::vector<Outcome> expected =
      run_two(with(options, {"--grad_scaler.init_scale=1024"}), 1);
  for (size_t rank = 0; rank < 2; ++rank) {
    SCOPED_TRACE(rank);
    ASSERT_EQ(found[rank].norms.size(), 4u);
    EXPECT_FALSE(std::isfinite(found[rank].norms[0]));
    EXPECT_EQ(std::vector<double>(found[rank].norms.begin() + 1, found[rank].norms.end()),
              expected[0].norms);
    EXPECT_EQ(found[rank].params, expected[0].params);
    EXPECT_EQ(found[rank].scale, 1024);
    EXPECT_EQ(found[rank].good, 3);
    EXPECT_EQ(found[rank].updates, 3);
    EXPECT_EQ(expected[rank].updates, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Overflow,
                         testing::Combine(testing::Values("ddp", "zero1", "fsdp"), testing::Bool()),
                         [](const auto& test) {
                           return std::get<0>(test.param) +
                                  (std::get<1>(test.param) ? "_kept" : "");
                         });

}  // namespace
}  // namespace weft

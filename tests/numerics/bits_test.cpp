// The numerics contract of one process: whatever the compiler settings, losses, gradient norms and
// parameters keep their bits.
#include <gtest/gtest.h>

#include <cmath>

#include "support/short_run.h"

namespace weft {
namespace {

using Overrides = std::vector<std::string>;

// A model with everything enabled that could change a bit: dropout, accumulation, bf16.
struct Setting {
  std::string name;
  Overrides overrides;
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> list = {
      {"gpt2", {"--model.name=gpt2", "--model.dropout=0.1"}},
      {"gpt2_bf16",
       {"--model.name=gpt2", "--model.dropout=0.1", "--training.mixed_precision_param=bfloat16"}},
      {"gpt2_f16",
       {"--model.name=gpt2", "--model.dropout=0.1", "--training.mixed_precision_param=float16",
        "--training.mixed_precision_reduce=bfloat16", "--grad_scaler.init_scale=1024"}},
      {"gpt2_accumulated",
       {"--model.name=gpt2", "--model.dropout=0.1", "--training.global_batch_size=8"}},
      // With every fused op.
      {"gpt2_fused",
       {"--model.name=gpt2", "--model.dropout=0", "--training.mixed_precision_param=bfloat16",
        "--training.global_batch_size=8", "--training.loss_chunks=2"}},
      {"llama",
       {"--model.name=llama", "--model.flavor=debug", "--model.n_layers=4", "--model.dim=64",
        "--model.n_heads=4", "--model.n_kv_heads=2", "--model.ffn_dim=96",
        "--model.vocab_size=128"}},
      {"documents",
       {"--model.name=gpt2", "--model.dropout=0.1", "--training.dataset=file",
        "--training.dataset_path=none", "--training.document_mask=true"}},
  };
  return list;
}

ShortRun run(const Setting& setting, const Overrides& more) {
  Overrides overrides = {"--training.local_batch_size=4", "--training.seq_len=16"};
  overrides.insert(overrides.end(), setting.overrides.begin(), setting.overrides.end());
  overrides.insert(overrides.end(), more.begin(), more.end());
  return short_run(overrides);
}

class Bits : public testing::TestWithParam<Setting> {
 protected:
  ShortRun plain_ = run(GetParam(), {});
};

TEST_P(Bits, TwoRunsAreEqual) {
  ASSERT_EQ(plain_.losses.size(), 3U);
  for (double loss : plain_.losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_NE(plain_.losses[0], plain_.losses[1]);
  EXPECT_EQ(run(GetParam(), {}), plain_);
}

TEST_P(Bits, RecomputeKeepsBitsAndSavesMemory) {
  const Overrides modes[] = {
      {"--activation_checkpoint.mode=full"},
      {"--activation_checkpoint.mode=selective", "--activation_checkpoint.selective_ac_option=2"},
      {"--activation_checkpoint.mode=selective",
       "--activation_checkpoint.selective_ac_option=from:1"},
      {"--activation_checkpoint.mode=selective", "--activation_checkpoint.selective_ac_option=op"},
      {"--activation_checkpoint.mode=memory_budget", "--activation_checkpoint.memory_budget=0"},
      {"--activation_checkpoint.mode=memory_budget", "--activation_checkpoint.memory_budget=0.5"},
  };
  for (const Overrides& mode : modes) {
    SCOPED_TRACE(mode.back());
    ShortRun recomputed = run(GetParam(), mode);
    EXPECT_EQ(recomputed, plain_);
    EXPECT_LE(recomputed.arena_bytes, plain_.arena_bytes);
  }
  EXPECT_LT(run(GetParam(), modes[0]).arena_bytes, plain_.arena_bytes);
}

TEST_P(Bits, FuseKeepsBits) {
  EXPECT_EQ(run(GetParam(), {"--compile.disable_passes=fuse"}), plain_);
}

TEST_P(Bits, SimplifyKeepsBits) {
  EXPECT_EQ(run(GetParam(), {"--compile.disable_passes=simplify"}), plain_);
}

TEST_P(Bits, NumberOfThreadsKeepsBits) {
  for (const char* threads : {"1", "2", "3"}) {
    EXPECT_EQ(run(GetParam(), {std::string("--device.threads=") + threads}), plain_);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Bits, testing::ValuesIn(settings()),
                         [](const auto& test) { return test.param.name; });

// Accumulation adds the gradients of micro-batches, while one batch sums over its rows. The order
// of additions differs: a few ulps of f32, not equality.
TEST(Accumulation, IsTheSameStepAsOneLargeBatch) {
  const Overrides shared = {"--model.name=gpt2", "--training.seq_len=16"};
  Overrides split = shared;
  split.insert(split.end(), {"--training.local_batch_size=2", "--training.global_batch_size=8"});
  Overrides full = shared;
  full.push_back("--training.local_batch_size=8");
  ShortRun a = short_run(split);
  ShortRun b = short_run(full);
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i] / b.losses[i], 1, 1e-6);
    EXPECT_NEAR(a.grad_norms[i] / b.grad_norms[i], 1, 1e-5);
  }
}

// Chunking the loss changes the order of its sum and of the head's gradient, which is accumulated
// in f32 also for bf16 and f16: a few ulps of f32 compared with one chunk, and the same bits
// whatever else the compiler does.
TEST(LossChunks, FollowOneChunkAndKeepTheirBits) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const ShortRun full = run(setting, {});
    const ShortRun chunked = run(setting, {"--training.loss_chunks=4"});
    for (size_t i = 0; i < full.losses.size(); ++i) {
      EXPECT_NEAR(chunked.losses[i] / full.losses[i], 1, 1e-6);
      EXPECT_NEAR(chunked.grad_norms[i] / full.grad_norms[i], 1, 1e-5);
    }
    for (const char* other : {"--compile.disable_passes=fuse", "--activation_checkpoint.mode=full",
                              "--device.threads=1"}) {
      EXPECT_EQ(run(setting, {"--training.loss_chunks=4", other}), chunked) << other;
    }
  }
}

// The logits of 64 tokens and a vocabulary of 4096 are most of this plan.
TEST(LossChunks, SaveTheMemoryOfTheLogits) {
  const Overrides large = {"--model.name=gpt2", "--model.vocab_size=4096", "--training.seq_len=64",
                           "--training.local_batch_size=16"};
  Overrides chunked = large;
  chunked.push_back("--training.loss_chunks=8");
  const int64_t logits = int64_t{16} * 64 * 4096 * 4;
  EXPECT_LT(short_run(chunked, 1).arena_bytes, short_run(large, 1).arena_bytes - logits / 2);
}

// Weights kept in the compute type equal a fresh cast.
TEST(KeptLowPrecision, HasTheBitsOfCasting) {
  for (const Setting& setting : settings()) {
    const bool low = std::any_of(setting.overrides.begin(), setting.overrides.end(),
                                 [](const std::string& option) {
                                   return option.starts_with("--training.mixed_precision_param=");
                                 });
    if (!low) continue;
    SCOPED_TRACE(setting.name);
    const Overrides variants[] = {{},
                                  {"--compile.disable_passes=fuse"},
                                  {"--activation_checkpoint.mode=full"},
                                  {"--device.threads=1", "--training.global_batch_size=8"}};
    for (Overrides variant : variants) {
      const ShortRun expected = run(setting, variant);
      variant.emplace_back("--training.keep_low_precision=true");
      SCOPED_TRACE(variant.front());
      EXPECT_EQ(run(setting, variant), expected);
    }
    const ShortRun reference = run(setting, {"--device.backend=reference"});
    EXPECT_EQ(run(setting, {"--device.backend=reference", "--training.keep_low_precision=true"}),
              reference);
  }
}

// bf16 rounds weights and activations to 8 bits of mantissa: losses agree to about one per cent.
TEST(MixedPrecision, FollowsFloat32) {
  ShortRun f32 = short_run({"--training.seq_len=16"}, 5);
  ShortRun bf16 =
      short_run({"--training.seq_len=16", "--training.mixed_precision_param=bfloat16"}, 5);
  for (size_t i = 0; i < f32.losses.size(); ++i) {
    EXPECT_NEAR(bf16.losses[i] / f32.losses[i], 1, 1e-2);
  }
  EXPECT_NE(f32.losses, bf16.losses);
}

// float16 rounds to 11 bits, eight times finer than bf16; its limited range does not matter as long
// as the scale keeps gradients inside it.
TEST(MixedPrecision, Float16FollowsFloat32) {
  ShortRun f32 = short_run({"--training.seq_len=16"}, 5);
  ShortRun f16 =
      short_run({"--training.seq_len=16", "--training.mixed_precision_param=float16"}, 5);
  for (size_t i = 0; i < f32.losses.size(); ++i) {
    EXPECT_NEAR(f16.losses[i] / f32.losses[i], 1, 1e-3);
  }
  EXPECT_NE(f32.losses, f16.losses);
}

// Each gradient is rounded to 8 bits once, which Adam's averages smooth.
TEST(MixedPrecision, GradientsInBf16FollowFloat32) {
  ShortRun f32 = short_run({"--training.seq_len=16"}, 5);
  ShortRun bf16 =
      short_run({"--training.seq_len=16", "--training.mixed_precision_reduce=bfloat16"}, 5);
  for (size_t i = 0; i < f32.losses.size(); ++i) {
    EXPECT_NEAR(bf16.losses[i] / f32.losses[i], 1, 1e-3);
    EXPECT_NEAR(bf16.grad_norms[i] / f32.grad_norms[i], 1, 1e-2);
  }
  EXPECT_EQ(f32.losses[0], bf16.losses[0]);
  EXPECT_NE(f32.grad_norms[0], bf16.grad_norms[0]);
}

}  // namespace
}  // namespace weft

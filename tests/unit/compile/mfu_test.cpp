// Values computed by hand from the formulas of docs/metrics.md.
#include "compile/mfu.h"

#include <gtest/gtest.h>

#include "base/machine.h"
#include "compile/compile.h"
#include "config/load.h"

namespace weft {
namespace {

double flops_per_token(const std::vector<std::string>& overrides) {
  const Config config = parse_config("", "test", overrides);
  const ModelSpec spec = resolve_model(config.model, 0);
  const BuiltModel model = build_model(spec, {.batch = 1, .seq_len = config.training.seq_len});
  return model_flops_per_token(model, spec, config.training);
}

// 124,439,808 parameters. The head is the token table, so that counts; the 1024 x 768 positions do
// not. Attention: 12 layers, width 768, the causal half of 1024 x 1024.
TEST(Mfu, CountsATiedHeadAndNoPositions) {
  EXPECT_EQ(
      flops_per_token({"--model.name=gpt2", "--model.flavor=124M", "--training.seq_len=1024"}),
      6.0 * (124'439'808 - 1024 * 768) + 6.0 * 12 * 768 * 1024);
}

// 8,030,261,248 parameters, 128,256 x 4096 of them in the token table, separate from the head.
TEST(Mfu, LeavesOutATableOfItsOwn) {
  const double expected = 6.0 * (8'030'261'248 - 128'256.0 * 4096) + 6.0 * 32 * 4096 * 8192;
  EXPECT_EQ(flops_per_token({"--model.name=llama", "--model.flavor=8B", "--training.seq_len=8192"}),
            expected);
  EXPECT_EQ(expected, 51'471'998'976);
  // The numbers published by SimpleFSDP for 8 x H100.
  EXPECT_NEAR(model_flops_utilization(expected, 7227, 989e12), 0.3761, 1e-4);
}

// Four layers of eight heads with keys of 48 and values of 32.
TEST(Mfu, CountsKeysAndValuesOfDifferentSizes) {
  const auto flops = [](int64_t seq_len) {
    return flops_per_token(
        {"--model.name=deepseek_v3", "--model.flavor=debug", cat("--training.seq_len=", seq_len)});
  };
  EXPECT_EQ(flops(128) - flops(64), 6.0 * 4 * 8 * (48 + 32) / 2 * 64);
}

// Three layers attend within chunks of 64: two full chunks and one of 32. The fourth does not.
TEST(Mfu, CountsTheKeysOfAChunk) {
  const auto flops = [](int64_t seq_len) {
    return flops_per_token(
        {"--model.name=llama4", "--model.flavor=debug", cat("--training.seq_len=", seq_len)});
  };
  const double chunked = (2.0 * 64 * 64 + 32 * 32) / 160;
  // The FLOPs themselves are some 1e8: their difference is rounded in the last places.
  EXPECT_NEAR(flops(160) - flops(64), 6.0 * 8 * 32 * (3 * (chunked - 64) + (160 - 64)), 1e-6);
}

TEST(Mfu, LeavesOutAttentionWithinDocuments) {
  EXPECT_EQ(flops_per_token({"--model.name=gpt2", "--model.flavor=124M", "--training.seq_len=1024",
                             "--training.document_mask=true"}),
            6.0 * (124'439'808 - 1024 * 768));
}

// Recomputation, micro-batches, the optimizer and ranks are not model FLOPs.
TEST(Mfu, DependsOnTheModelAlone) {
  const auto compiled = [](std::vector<std::string> overrides, int64_t ranks) {
    overrides.insert(overrides.begin(), {"--training.local_batch_size=2", "--training.seq_len=16"});
    return compile(parse_config("", "test", overrides), {.data_vocab = 0, .ranks = ranks});
  };
  const double plain = compiled({}, 1).flops_per_token;
  // GPT-2 "tiny": width 64, 2 layers, 256 tokens.
  EXPECT_EQ(plain, 6.0 * (256 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64) + 6.0 * 2 * 64 * 16);
  EXPECT_EQ(compiled({"--activation_checkpoint.mode=full"}, 1).flops_per_token, plain);
  EXPECT_EQ(compiled({"--training.global_batch_size=8"}, 1).flops_per_token, plain);
  EXPECT_EQ(compiled({}, 4).flops_per_token, plain);
}

TEST(Mfu, DividesByTheDataSheetOfDeviceAndPrecision) {
  const auto peak = [](const std::string& spec, std::vector<std::string> overrides) {
    overrides.push_back("--device.backend=cuda");
    overrides.push_back("--device.spec=" + spec);
    const Config config = parse_config("", "test", overrides);
    return peak_flops(config, device_spec_of(config));
  };
  for (const char* spec : {"h100", "h100x8", "h200", "h200x1"}) {
    EXPECT_EQ(peak(spec, {"--training.mixed_precision_param=bfloat16"}), 989e12) << spec;
    EXPECT_EQ(peak(spec, {"--training.mixed_precision_param=float16"}), 989e12) << spec;
    EXPECT_EQ(peak(spec, {}), 67e12) << spec;
    EXPECT_EQ(peak(spec, {"--device.tf32=true"}), 494.5e12) << spec;
  }
  EXPECT_EQ(peak("cpu", {}), std::nullopt);  // only a run knows which CPU it is
}

// A GPU is identified by its own name, whatever device the plan was made for.
TEST(Mfu, FindsTheDataSheetOfADeviceThatIsThere) {
  EXPECT_EQ(find_data_sheet("NVIDIA H200")->name, "h200");
  EXPECT_EQ(find_data_sheet("NVIDIA H100 80GB HBM3")->name, "h100");
  EXPECT_EQ(find_data_sheet("cpu, 2 threads"), nullptr);
}

// A rank's peak is that of the cores its threads use, limited to the cores there are.
TEST(Mfu, ACpuHasThePeakOfItsCores) {
  const Backend& cpu = find_backend("cpu");
  const Config f32 = parse_config("", "test", {});
  const Config bf16 = parse_config("", "test", {"--training.mixed_precision_param=bfloat16"});
  const auto peak = [&](const Config& config, int64_t threads) {
    return peak_flops(config, device_spec_of(config), *cpu.make_device({.threads = threads}))
        .value();
  };
  const int64_t cores = usable_cores();
  EXPECT_GT(peak(f32, 1), 0);
  for (const Config& config : {f32, bf16}) {
    EXPECT_EQ(peak(config, cores), static_cast<double>(cores) * peak(config, 1));
    EXPECT_EQ(peak(config, 4 * cores), peak(config, cores));
  }
}

}  // namespace
}  // namespace weft

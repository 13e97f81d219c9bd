// Each model against a stored PyTorch trace: ten steps, all gradients, all final weights, on both
// host backends, with and without recompute.
#include <gtest/gtest.h>

#include <filesystem>

#include "config/load.h"
#include "support/temp_folder.h"
#include "tools/verify.h"

namespace weft {
namespace {

struct Case {
  std::string model;
  std::string backend;
  std::string recompute;
};

std::string trace_folder(const std::string& model) {
  return std::string(WEFT_TESTS_DIR) + "/numerics/" + model;
}

std::vector<Comparison> compare(const std::string& folder, const Case& test) {
  Config config = parse_config(
      "", "test",
      {"--device.backend=" + test.backend, "--activation_checkpoint.mode=" + test.recompute});
  return verify_trace(open_trace(folder, config), {});
}

class Traces : public testing::TestWithParam<Case> {};

TEST_P(Traces, AgreesWithPyTorch) {
  auto comparisons = compare(trace_folder(GetParam().model), GetParam());
  ASSERT_EQ(comparisons.size(), 4U);
  for (const Comparison& comparison : comparisons) {
    EXPECT_TRUE(comparison.passed())
        << comparison.quantity << ": " << comparison.worst << " at " << comparison.where;
    EXPECT_GT(comparison.worst, 0) << comparison.quantity << " was not compared";
  }
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const char* model : {"gpt2", "llama3", "qwen3_batch8", "qwen3_moe_batch8",
                            "deepseek_v3_batch8", "llama4_batch8"}) {
    for (const char* backend : {"reference", "cpu"}) {
      for (const char* recompute : {"none", "full", "selective", "memory_budget"}) {
        list.push_back({model, backend, recompute});
      }
    }
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(All, Traces, testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.model + "_" + test.param.backend + "_" + test.param.recompute;
});

struct LowPrecision {
  std::string name;
  std::vector<std::string> overrides;
  VerifyTolerances tolerances;
};

class LowPrecisionTraces
    : public testing::TestWithParam<std::tuple<std::string, std::string, LowPrecision>> {};

TEST_P(LowPrecisionTraces, FollowsPyTorchInFloat32) {
  const auto& [model, backend, precision] = GetParam();
  std::vector<std::string> overrides = precision.overrides;
  overrides.push_back("--device.backend=" + backend);
  const auto comparisons = verify_trace(
      open_trace(trace_folder(model), parse_config("", "test", overrides)), precision.tolerances);
  for (const Comparison& comparison : comparisons) {
    EXPECT_TRUE(comparison.passed())
        << comparison.quantity << ": " << comparison.worst << " at " << comparison.where;
  }
  // The rounding must be visible, or the setting did nothing.
  EXPECT_GT(comparisons.at(2).worst, 1e-5);
}

// Unit roundoff is 2^-11 in float16 and 2^-8 in bf16; twice that for a gradient that has been
// rounded several times. The gradient of the key part of GPT-2's attention bias is pure rounding
// noise, which Adam amplifies to full steps: hence half of the distance that tensor moved.
const LowPrecision kLowPrecisions[] = {
    {"float16",
     {"--training.mixed_precision_param=float16"},
     {.loss = 1e-3, .gradient = 2e-3, .weight = 0.5}},
    {"bf16_reduce",
     {"--training.mixed_precision_reduce=bfloat16"},
     {.loss = 2e-4, .gradient = 4e-3, .weight = 5e-3}},
    {"float16_bf16_reduce",
     {"--training.mixed_precision_param=float16", "--training.mixed_precision_reduce=bfloat16"},
     {.loss = 1e-3, .gradient = 4e-3, .weight = 0.5}},
};

INSTANTIATE_TEST_SUITE_P(All, LowPrecisionTraces,
                         testing::Combine(testing::Values("gpt2", "llama3"),
                                          testing::Values("reference", "cpu"),
                                          testing::ValuesIn(kLowPrecisions)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::get<1>(test.param) + "_" +
                                  std::get<2>(test.param).name;
                         });

// A trace with altered expectations must fail, so that a pass means something.
TEST(Traces, AlteredExpectationsAreNoticed) {
  TempFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(trace_folder("gpt2"))) {
    std::filesystem::copy(entry, folder / entry.path().filename().string());
  }
  std::string text = folder.read("trace.json");
  size_t at = text.find("5.172729969024658");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 5, "5.173");
  folder.write("trace.json", text);
  auto comparisons = compare(folder.path(), {"gpt2", "cpu", "none"});
  EXPECT_FALSE(comparisons[0].passed());
  EXPECT_EQ(comparisons[0].where, "step 2");
}

}  // namespace
}  // namespace weft

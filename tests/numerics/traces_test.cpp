// Each model against a stored PyTorch trace: ten steps, all gradients, all final weights, on both
// host backends, with and without recompute.
#include <gtest/gtest.h>

#include <filesystem>

#include "config/load.h"
#include "support/temp_folder.h"
#include "train/verify.h"

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
  return verify_trace(folder, config, {});
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
  for (const char* model : {"gpt2", "llama3"}) {
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

// A trace whose expectations are altered must fail, so that a pass means something.
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

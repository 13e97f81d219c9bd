// A run asked to end finishes its step, saves its weights and says so with exit code 75.
#include <gtest/gtest.h>
#include <signal.h>

#include "checkpoint/safetensors.h"
#include "cli/workspace.h"

namespace weft {
namespace {

class Interrupt : public testing::TestWithParam<int> {};

TEST_P(Interrupt, EndsCleanlyAfterTheStep) {
  const Workspace work;
  work.prepare_data();
  bool sent = false;
  const ProcessOptions options{
      .watch = [&](pid_t child, const std::string& output, const std::string&) {
        if (!sent && output.find("step 5/") != std::string::npos) {
          sent = true;
          ::kill(child, GetParam());
        }
      }};
  const ProcessResult result = work.train(
      {"--training.steps=1000000", "--validation.freq=1000000", "--metrics.log_freq=1"}, options);
  EXPECT_EQ(result.exit_code, 75) << result.errors;
  EXPECT_EQ(result.errors, "");

  const auto lines = work.metrics("out/metrics.jsonl");
  ASSERT_GE(lines.size(), 6U);
  const int64_t last = lines.back().at("step").get<int64_t>();
  EXPECT_TRUE(lines.back().contains("validation_loss"));
  const std::string said = "stopped after step " + std::to_string(last) + " as asked\n";
  EXPECT_NE(result.output.find(said), std::string::npos) << result.output;
  EXPECT_NO_THROW(SafetensorsFile::open(work.folder() / "out/weights/model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Cli, Interrupt, testing::Values(SIGINT, SIGTERM), [](const auto& signal) {
  return signal.param == SIGINT ? "sigint" : "sigterm";
});

}  // namespace
}  // namespace weft

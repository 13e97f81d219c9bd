// Output that cannot be written: one sentence, exit code 73, nothing half-written. A limit on the
// size of files stands in for a full disk; both show as a failed write.
#include <gtest/gtest.h>

#include "cli/workspace.h"

namespace weft {
namespace {

void expect_cannot_write(const ProcessResult& result, const std::string& path) {
  EXPECT_EQ(result.exit_code, 73) << result.errors;
  EXPECT_EQ(result.errors, "weft: " + path + ": cannot write: File too large\n");
}

void expect_no_partial_files(const Workspace& work) {
  for (const auto& [name, text] : work.tree()) {
    EXPECT_EQ(name.find(".partial"), std::string::npos) << name;
  }
}

TEST(Output, NoRoomForTheConfig) {
  const Workspace work;
  work.prepare_data();
  expect_cannot_write(work.train({}, {.file_size_limit = 100}), "out/config.toml");
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "out/config.toml"));
  expect_no_partial_files(work);
}

TEST(Output, NoRoomForTheMetrics) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result =
      work.train({"--training.steps=100", "--validation.freq=100"}, {.file_size_limit = 8000});
  expect_cannot_write(result, "out/metrics.jsonl");
  const auto lines = work.metrics("out/metrics.jsonl");  // whole lines only
  EXPECT_GT(lines.size(), 5U);
  EXPECT_LT(lines.size(), 100U);
  expect_no_partial_files(work);
}

TEST(Output, NoRoomForTheWeights) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.train({}, {.file_size_limit = 20000});
  expect_cannot_write(result, "out/weights/model.safetensors");
  EXPECT_TRUE(std::filesystem::is_empty(work.folder() / "out/weights"));
}

TEST(Output, OldWeightsOutliveAFailedSave) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({}).exit_code, 0);
  const auto before = work.tree();
  EXPECT_EQ(work.train({"--debug.seed=1"}, {.file_size_limit = 20000}).exit_code, 73);
  for (const auto& [name, text] : work.tree()) {
    const bool weights = name.starts_with("out/weights/");
    EXPECT_TRUE(!weights || text == before.at(name)) << name;
  }
}

TEST(Output, NoRoomForTokens) {
  const Workspace work;
  const ProcessResult result =
      work.run({"data", "prepare", kFixtureText, "--output", "data"}, {.file_size_limit = 1000});
  expect_cannot_write(result, "data/train.bin");
  EXPECT_TRUE(work.folder().names() == (std::vector<std::string>{"data", "run.toml"}));
  EXPECT_TRUE(std::filesystem::is_empty(work.folder() / "data"));
}

TEST(Output, NoRoomOnStandardOutput) {
  const ProcessResult result = Workspace().run({"opt", "--list-ops"}, {.output_file = "/dev/full"});
  EXPECT_EQ(result.exit_code, 73);
  EXPECT_EQ(result.errors,
            "weft: standard output: cannot write all of it; check the space where it goes\n");
}

TEST(Output, AReaderThatLeavesIsNoFailure) {
  const Workspace work;
  for (const char* list : {"--list-ops", "--list-passes", "--list-keys"}) {
    const ProcessResult result = work.run({"opt", list}, {.reader_gone = true});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.errors, "");
  }
  work.prepare_data();
  EXPECT_EQ(work.train({}, {.reader_gone = true}).exit_code, 0);
  EXPECT_EQ(work.figures("out/metrics.jsonl", "loss").size(), 6U);
}

}  // namespace
}  // namespace weft

// Output that cannot be written: one sentence, exit code 73, nothing half-written. A file size
// limit stands in for a full disk; both show up as a failed write.
#include <gtest/gtest.h>

#include <signal.h>
#include <regex>

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

// The run continues without its metrics and says so, at once and at its end.
TEST(Output, NoRoomForTheMetrics) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result =
      work.train({"--training.steps=100", "--validation.freq=100", "--checkpoint.enable=false"},
                 {.file_size_limit = 8000});
  EXPECT_EQ(result.exit_code, 73);
  const std::string step = std::to_string(work.metrics("out/metrics.jsonl").size() + 1);
  EXPECT_EQ(result.errors,
            "weft: out/metrics.jsonl: cannot write: File too large; training continues without it\n"
            "weft: out/metrics.jsonl: incomplete, the metrics from step " +
                step + " on are missing\n");
  EXPECT_NE(result.output.find("step 100/100"), std::string::npos) << result.output;
  const auto lines = work.metrics("out/metrics.jsonl");  // complete lines only
  EXPECT_GT(lines.size(), 5U);
  EXPECT_LT(lines.size(), 100U);
  expect_no_partial_files(work);
}

TEST(Output, WeightsAreSavedWithoutMetrics) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({"--job.dump_folder=good"}).exit_code, 0);
  for (const char* ranks : {"--ranks=1", "--ranks=2"}) {
    const ProcessResult result = work.train({ranks, "--metrics.file=/dev/full"});
    EXPECT_EQ(result.exit_code, 73);
    EXPECT_EQ(
        result.errors,
        "weft: /dev/full: cannot write: No space left on device; training continues without it\n"
        "weft: /dev/full: incomplete, the metrics from step 1 on are missing\n");
    EXPECT_TRUE(std::filesystem::exists(work.folder() / work.saved("out") + "/model.safetensors"));
  }
}

// What the run still has is written again, and only existing files are listed as written.
TEST(Output, ARunFolderThatIsRemovedIsMadeAgain) {
  const Workspace work;
  work.prepare_data();
  bool removed = false;
  ProcessOptions options;
  options.watch = [&](pid_t child, const std::string& output, const std::string&) {
    if (removed || output.find("step 5/") == std::string::npos) return;
    removed = true;
    std::filesystem::remove_all(work.folder() / "out");
    ::kill(child, SIGTERM);
  };
  const std::vector<std::string> flags = {"--training.steps=1000000", "--validation.freq=1000000",
                                          "--metrics.log_freq=1"};
  const ProcessResult result = work.train(flags, options);
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_EQ(result.errors,
            "weft: out/metrics.jsonl: removed during the run, its metrics are lost\n");
  for (const char* line : {"\nout: the folder was removed during the run; created again\n",
                           "\nwrote out/config.toml, out/plan.txt, out/checkpoints/step-"}) {
    EXPECT_NE(result.output.find(line), std::string::npos) << result.output;
  }
  for (const std::string& name :
       {std::string("out/config.toml"), std::string("out/plan.txt"), work.saved("out")}) {
    EXPECT_TRUE(std::filesystem::exists(work.folder() / name)) << name;
  }
}

TEST(Output, NoRoomForTheWeights) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.train({}, {.file_size_limit = 20000});
  EXPECT_EQ(result.exit_code, 73);
  const std::regex message(
      "weft: out/checkpoints/step-6.partial-[0-9a-f]{16}/model.safetensors: cannot write: File too "
      "large\n");
  EXPECT_TRUE(std::regex_match(result.errors, message)) << result.errors;
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "out/checkpoints"));
}

TEST(Output, NothingIsReplacedUnlessAsked) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({}).exit_code, 0);
  const auto before = work.tree();
  for (const std::string ranks : {"1", "2"}) {
    const ProcessResult again = work.run({"train", "run.toml", "--ranks", ranks});
    EXPECT_EQ(again.exit_code, 73);
    EXPECT_NE(again.errors.find("out: holds the result of an earlier run "
                                "(out/checkpoints/step-6); continue it with --resume, replace it "
                                "with --overwrite, or set another job.dump_folder\n"),
              std::string::npos)
        << again.errors;
    EXPECT_TRUE(work.tree() == before);
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
            "weft: standard output: cannot write all output; check the free space\n");
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

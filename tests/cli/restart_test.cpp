// Runs that start again by themselves after a rank has died.
#include <gtest/gtest.h>

#include <csignal>

#include "cli/children.h"
#include "cli/faults.h"
#include "cli/results.h"

namespace weft {
namespace {

// A rank that is killed is started again, from the newest checkpoint.
TEST(Restart, AKilledRankIsStartedAgain) {
  const Workspace work;
  work.prepare_data();
  for (const std::string ranks : {"1", "2"}) {
    const std::vector<std::string> flags = {"--ranks",
                                            ranks,
                                            "--training.steps=60",
                                            "--checkpoint.interval=5",
                                            "--metrics.log_freq=1",
                                            "--validation.freq=20"};
    std::vector<std::string> uninterrupted = flags;
    uninterrupted.emplace_back("--job.dump_folder=uninterrupted");
    ASSERT_EQ(work.train(uninterrupted).exit_code, 0);
    int kills = 0;
    ProcessOptions options;
    options.watch = [&](pid_t child, const std::string& output, const std::string&) {
      const std::string seen = kills == 0 ? "step 12/60" : "step 33/60";
      if (kills == 2 || output.find(seen) == std::string::npos) return;
      const std::vector<pid_t> children = children_of(child);
      if (children.empty()) return;
      ::kill(children.back(), SIGKILL);
      ++kills;
    };
    std::vector<std::string> restarted = flags;
    restarted.emplace_back("--max-restarts=1");
    const ProcessResult result = work.train(restarted, options);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(kills, 2);
    EXPECT_NE(result.output.find("restart 1 of 1: from step "), std::string::npos) << result.output;
    EXPECT_EQ(results_from(work, "out", 0), results_from(work, "uninterrupted", 0));
    expect_same_tensors(work, "out/checkpoints/step-60", "uninterrupted/checkpoints/step-60");
  }
}

// Before its first own checkpoint a run starts again from what it was given.
TEST(Restart, BeforeTheFirstCheckpointFromTheSamePlace) {
  const Workspace work;
  work.prepare_data();
  const std::vector<std::string> flags = {"--ranks=2", "--training.steps=200",
                                          "--metrics.log_freq=1"};
  std::vector<std::string> source = flags;
  source.insert(source.end(), {"--job.dump_folder=source", "--checkpoint.interval=50"});
  ASSERT_EQ(work.train(source).exit_code, 0);
  const auto train = [&](const std::vector<std::string>& more, const std::string& kill_at) {
    bool killed = kill_at.empty();
    ProcessOptions options;
    options.watch = [&](pid_t child, const std::string& output, const std::string&) {
      if (killed || output.find(kill_at) == std::string::npos) return;
      const std::vector<pid_t> children = children_of(child);
      if (children.empty()) return;
      ::kill(children.back(), SIGKILL);
      killed = true;
    };
    std::vector<std::string> words = {"train", "run.toml", "--max-restarts=1"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = work.run(words, options);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_TRUE(killed) << result.output;
    return result.output;
  };
  const std::string given = "--resume=source/checkpoints/step-50";
  const std::string branched = train({given}, "step 55/200");
  EXPECT_NE(branched.find("restart 1 of 1: from source/checkpoints/step-50\n"), std::string::npos)
      << branched;
  EXPECT_EQ(results_from(work, "out", 51), results_from(work, "source", 51));
  EXPECT_EQ(results_from(work, "out", 0).size(), results_from(work, "source", 51).size());
  expect_same_tensors(work, "out/checkpoints/step-200", "source/checkpoints/step-200");
  // A folder that holds a result is not replaced because a rank dies early.
  const ProcessResult used =
      work.run({"train", "run.toml", "--max-restarts=1", "--ranks=2", "--training.steps=200"});
  EXPECT_EQ(used.exit_code, 73);
  EXPECT_NE(used.errors.find("out: holds the result of an earlier run"), std::string::npos)
      << used.errors;
}

// A run that replaces another one and dies before it has removed that one does not continue it.
TEST(Restart, NeverContinuesTheRunThatItReplaces) {
  const Workspace work;
  work.folder().write("tiny.toml", kTinyRun);
  work.run_ok({"train", "tiny.toml"});
  work.folder().write("count", std::string(8, '\0'));
  const ProcessResult result = run_process(
      {"/usr/bin/env", "LD_PRELOAD=" WEFT_FAULT_SHIM, "FAULT_STATE=" + work.folder() / "count",
       "FAULT=kill:1", WEFT_BINARY, "train", "tiny.toml", "--overwrite", "--max-restarts=1"},
      {.folder = work.folder().path(), .own_group = true});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.output.find("restart 1 of 1: from the start\n"), std::string::npos)
      << result.output;
  EXPECT_EQ(result.output.find("resumed"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("step 1/3"), std::string::npos) << result.output;
}

TEST(Restart, WithoutProgressTheRunGivesUp) {
  const Workspace work;
  work.prepare_data();
  size_t seen = 0;
  ProcessOptions options;
  options.watch = [&](pid_t child, const std::string& output, const std::string&) {
    const size_t at = output.find("step 1/", seen);
    if (at == std::string::npos) return;
    const std::vector<pid_t> children = children_of(child);
    if (children.empty()) return;
    seen = at + 1;
    ::kill(children.back(), SIGKILL);
  };
  const ProcessResult result =
      work.train({"--ranks=2", "--training.steps=1000000", "--max-restarts=2"}, options);
  EXPECT_EQ(result.exit_code, 80) << result.errors;
  EXPECT_NE(result.errors.find("weft: 3 attempts failed without a new checkpoint; the newest is "
                               "missing\n"),
            std::string::npos)
      << result.errors;
}

}  // namespace
}  // namespace weft

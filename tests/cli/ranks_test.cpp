// weft train --ranks: processes and threads give the same bytes, a killed rank is named, and
// nothing of a job stays behind.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "cli/workspace.h"

namespace weft {
namespace {

// The children of a process, from /proc.
std::vector<pid_t> children_of(pid_t parent) {
  std::ifstream file("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) +
                     "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

bool alive(pid_t pid) {
  return std::filesystem::exists("/proc/" + std::to_string(pid));
}

TEST(TrainRanks, ProcessesAndThreadsWriteTheSameWeights) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult shm = work.train({"--ranks", "2", "--job.dump_folder=shm"});
  ASSERT_EQ(shm.exit_code, 0) << shm.errors;
  const ProcessResult threads =
      work.train({"--ranks", "2", "--transport", "threads", "--job.dump_folder=threads"});
  ASSERT_EQ(threads.exit_code, 0) << threads.errors;
  EXPECT_EQ(work.figures("shm/metrics.jsonl", "loss"),
            work.figures("threads/metrics.jsonl", "loss"));
  EXPECT_EQ(work.folder().read("shm/weights/model.safetensors"),
            work.folder().read("threads/weights/model.safetensors"));
}

TEST(TrainRanks, AKilledRankIsNamedAndTheOthersStop) {
  const Workspace work;
  work.prepare_data();
  std::vector<pid_t> ranks;
  ProcessOptions options{.folder = work.folder().path()};
  options.watch = [&](pid_t launcher, const std::string& output) {
    if (!ranks.empty() || output.find("step 10/") == std::string::npos) return;
    ranks = children_of(launcher);
    if (ranks.size() == 3) ::kill(ranks[1], SIGKILL);
  };
  const ProcessResult result = work.train({"--ranks", "3", "--training.steps=100000",
                                           "--metrics.log_freq=1", "--validation.freq=1000000"},
                                          options);
  ASSERT_EQ(ranks.size(), 3U);
  EXPECT_EQ(result.exit_code, 76) << result.errors;
  EXPECT_NE(result.errors.find("rank 1 (pid " + std::to_string(ranks[1]) +
                               ") was killed by signal 9 (SIGKILL) at training step "),
            std::string::npos)
      << result.errors;
  for (pid_t rank : ranks) EXPECT_FALSE(alive(rank));
}

TEST(TrainRanks, AnInterruptEndsAllRanksCleanly) {
  const Workspace work;
  work.prepare_data();
  bool sent = false;
  ProcessOptions options{.folder = work.folder().path()};
  options.watch = [&](pid_t launcher, const std::string& output) {
    if (sent || output.find("step 10/") == std::string::npos) return;
    sent = true;
    ::kill(launcher, SIGINT);
  };
  const ProcessResult result = work.train({"--ranks", "2", "--training.steps=100000",
                                           "--metrics.log_freq=1", "--validation.freq=1000000"},
                                          options);
  EXPECT_EQ(result.exit_code, 75) << result.errors;
  EXPECT_NE(result.output.find("as asked"), std::string::npos) << result.output;
  EXPECT_TRUE(std::filesystem::exists(work.folder() / "out/weights/model.safetensors"));
}

}  // namespace
}  // namespace weft

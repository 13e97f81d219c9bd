// weft train --ranks: processes and threads give the same bytes, a killed rank is named, and
// nothing of a job stays behind.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

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

TEST(TrainRanks, AStoppedRankIsNamedWithTheOpOthersWaitIn) {
  const Workspace work;
  work.prepare_data();
  std::vector<pid_t> ranks;
  std::chrono::steady_clock::time_point stopped;
  ProcessOptions options;
  options.watch = [&](pid_t launcher, const std::string& output) {
    if (!ranks.empty() || output.find("step 10/") == std::string::npos) return;
    ranks = children_of(launcher);
    if (ranks.size() == 3) ::kill(ranks[1], SIGSTOP);
    stopped = std::chrono::steady_clock::now();
  };
  const ProcessResult result =
      work.train({"--ranks", "3", "--training.steps=100000", "--metrics.log_freq=1",
                  "--validation.freq=1000000", "--comm.timeout_seconds=1"},
                 options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - stopped;
  ASSERT_EQ(ranks.size(), 3U);
  EXPECT_EQ(result.exit_code, 79) << result.errors;
  const std::regex message(
      "weft: rank 1 hangs: no sign of life for [0-9.]+ s at training step [0-9]+, (in|after) .+, "
      "while rank [02] waits at training step [0-9]+, in .+; if the work takes that long, set "
      "comm.timeout_seconds higher\nweft: the other 2 ranks stopped; killed after 4 s: 1\n");
  EXPECT_TRUE(std::regex_match(result.errors, message)) << result.errors;
  EXPECT_LT(took.count(), 9.0);
  for (pid_t rank : ranks) EXPECT_FALSE(alive(rank));
}

struct Combination {
  const char* mode;
  const char* bucketing;
  const char* overlap;
  const char* reshard;
  int64_t ranks;
};

// Every value of a column meets every value of the others; HSDP takes four ranks.
const Combination kPairwise[] = {
    {"ddp", "none", "true", "always", 2},   {"ddp", "transformer_block", "false", "never", 4},
    {"ddp", "size", "true", "never", 2},    {"ddp", "auto", "false", "always", 4},
    {"fsdp", "none", "false", "never", 4},  {"fsdp", "transformer_block", "true", "always", 2},
    {"fsdp", "size", "false", "always", 4}, {"fsdp", "auto", "true", "never", 2},
    {"hsdp", "none", "true", "never", 4},   {"hsdp", "transformer_block", "false", "always", 4},
    {"hsdp", "size", "true", "always", 4},  {"hsdp", "auto", "false", "never", 4},
};

std::vector<std::string> flags(const Combination& combination) {
  const std::string mode = combination.mode;
  const int64_t ranks = combination.ranks;
  const int64_t copies = mode == "ddp" ? ranks : mode == "hsdp" ? 2 : 1;
  return {"--ranks=" + std::to_string(ranks),
          "--parallelism.data_parallel_replicate_degree=" + std::to_string(copies),
          "--parallelism.data_parallel_shard_degree=" + std::to_string(ranks / copies),
          std::string("--compile.bucketing=") + combination.bucketing,
          std::string("--compile.overlap=") + combination.overlap,
          std::string("--parallelism.fsdp_reshard_after_forward=") + combination.reshard};
}

// Threads in any mode give these bits; processes must too, whatever the compiler does.
TEST(TrainRanks, ProcessesHaveTheBitsOfThreadsInEveryCombination) {
  const Workspace work;
  work.prepare_data();
  std::map<int64_t, std::vector<double>> expected;
  for (const char* ranks : {"2", "4"}) {
    const std::string out = std::string("threads") + ranks;
    const ProcessResult result = work.train(
        {"--ranks", ranks, "--transport=threads", "--metrics.log_freq=1",
         "--compile.bucketing=none", "--compile.overlap=false", "--job.dump_folder=" + out});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    expected[std::stoll(ranks)] = work.figures(out + "/metrics.jsonl", "loss");
    EXPECT_EQ(expected[std::stoll(ranks)].size(), 6U);
  }
  for (const Combination& combination : kPairwise) {
    SCOPED_TRACE(testing::PrintToString(flags(combination)));
    std::vector<std::string> arguments = flags(combination);
    arguments.insert(arguments.end(), {"--metrics.log_freq=1", "--job.dump_folder=shm"});
    const ProcessResult result = work.train(arguments);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(work.figures("shm/metrics.jsonl", "loss"), expected[combination.ranks]);
    std::filesystem::remove_all(work.folder() / "shm");
  }
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

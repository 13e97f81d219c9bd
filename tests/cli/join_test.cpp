// Ranks that another launcher has started: they find each other, train the same bits, and a rank
// that dies or never comes is named.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <regex>
#include <thread>

#include "cli/workspace.h"

namespace weft {
namespace {

// Runs these ranks of a job of `ranks` as torchrun would; `watch` watches rank 0.
struct LaunchedJob {
  int64_t ranks = 2;
  std::vector<int64_t> started = {0, 1};
  std::vector<std::string> arguments = {};
  std::function<void(const std::string& output)> watch = {};
  std::vector<pid_t> pids = {};

  std::vector<ProcessResult> run(const Workspace& work) {
    std::vector<ProcessResult> results(started.size());
    std::vector<std::thread> threads;
    pids.assign(started.size(), 0);
    for (size_t i = 0; i < started.size(); ++i) {
      threads.emplace_back([&, i] { results[i] = start(work, i); });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

 private:
  ProcessResult start(const Workspace& work, size_t index) {
    const std::string rank = std::to_string(started[index]), all = std::to_string(ranks);
    std::vector<std::string> command = {"/usr/bin/env",
                                        "RANK=" + rank,
                                        "WORLD_SIZE=" + all,
                                        "LOCAL_RANK=" + rank,
                                        "LOCAL_WORLD_SIZE=" + all,
                                        "MASTER_PORT=" + std::to_string(::getpid()),
                                        WEFT_BINARY,
                                        "train",
                                        "run.toml",
                                        "--overwrite"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    ProcessOptions options{.folder = work.folder().path()};
    options.watch = [&, index](pid_t pid, const std::string& output, const std::string&) {
      pids[index] = pid;
      if (index == 0 && watch) watch(output);
    };
    return run_process(command, options);
  }
};

TEST(LaunchedRanks, TrainTheBitsOfRanksThatWeftStarts) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult own = work.train({"--ranks=3", "--job.dump_folder=own"});
  ASSERT_EQ(own.exit_code, 0) << own.errors;
  LaunchedJob job{.ranks = 3, .started = {2, 0, 1}, .arguments = {"--job.dump_folder=other"}};
  for (const ProcessResult& rank : job.run(work)) {
    EXPECT_EQ(rank.exit_code, 0) << rank.errors;
    EXPECT_EQ(rank.errors, "");
  }
  EXPECT_EQ(work.folder().read(work.saved("own") + "/model.safetensors"),
            work.folder().read(work.saved("other") + "/model.safetensors"));
}

const std::vector<std::string> kLongRun = {"--training.steps=100000", "--metrics.log_freq=1",
                                           "--validation.freq=1000000"};

TEST(LaunchedRanks, AKilledRankIsNamedAndTheOthersStop) {
  const Workspace work;
  work.prepare_data();
  LaunchedJob job{.ranks = 3, .started = {0, 1, 2}, .arguments = kLongRun};
  bool killed = false;
  job.watch = [&](const std::string& output) {
    if (killed || output.find("step 10/") == std::string::npos) return;
    killed = true;
    ::kill(job.pids[1], SIGKILL);
  };
  const std::vector<ProcessResult> ranks = job.run(work);
  ASSERT_TRUE(killed);
  EXPECT_EQ(ranks[0].exit_code, 76);
  const std::regex message("weft: rank 1 \\(pid " + std::to_string(job.pids[1]) +
                           "\\) died at training step \\d+, (in|after) .+\n");
  EXPECT_TRUE(std::regex_match(ranks[0].errors, message)) << ranks[0].errors;
  EXPECT_EQ(ranks[2].exit_code, 76);
  EXPECT_EQ(ranks[2].errors, "");
}

TEST(LaunchedRanks, WhenTheFirstRankDiesAnotherNamesIt) {
  const Workspace work;
  work.prepare_data();
  LaunchedJob job{.ranks = 3, .started = {0, 1, 2}, .arguments = kLongRun};
  bool killed = false;
  job.watch = [&](const std::string& output) {
    if (killed || output.find("step 10/") == std::string::npos) return;
    killed = true;
    ::kill(job.pids[0], SIGKILL);
  };
  const std::vector<ProcessResult> ranks = job.run(work);
  ASSERT_TRUE(killed);
  EXPECT_EQ(ranks[1].exit_code, 76);
  EXPECT_EQ(ranks[2].exit_code, 76);
  const std::regex message(
      "weft: rank 0 \\(pid \\d+\\) died at training step \\d+, (in|after) .+\n");
  EXPECT_TRUE(std::regex_match(ranks[1].errors + ranks[2].errors, message))
      << ranks[1].errors << ranks[2].errors;
}

TEST(LaunchedRanks, ASignalToTheRanksSavesAndEndsTheRun) {
  const Workspace work;
  work.prepare_data();
  LaunchedJob job{.arguments = kLongRun};
  bool told = false;
  job.watch = [&](const std::string& output) {
    if (told || output.find("step 10/") == std::string::npos) return;
    told = true;
    for (const pid_t pid : job.pids) ::kill(pid, SIGTERM);
  };
  for (const ProcessResult& rank : job.run(work)) EXPECT_EQ(rank.exit_code, 75) << rank.errors;
  EXPECT_NE(work.saved("out"), "");
}

TEST(LaunchedRanks, MissingRanksAreNamed) {
  const Workspace work;
  work.prepare_data();
  LaunchedJob job{
      .ranks = 4, .started = {0, 2}, .arguments = {"--comm.timeout_seconds=0.2"}, .watch = {}};
  const std::vector<ProcessResult> ranks = job.run(work);
  EXPECT_EQ(ranks[0].exit_code, 76);
  EXPECT_EQ(ranks[0].errors,
            "weft: rank 0 waited 1.2 s for ranks 1, 3 of this host; see why they did not start\n");
  EXPECT_EQ(ranks[1].exit_code, 76);

  LaunchedJob late{
      .ranks = 2, .started = {1}, .arguments = {"--comm.timeout_seconds=0.2"}, .watch = {}};
  const ProcessResult alone = late.run(work)[0];
  EXPECT_EQ(alone.exit_code, 76);
  EXPECT_EQ(alone.errors,
            "weft: rank 1 waited 1.2 s for rank 0 of this host; see why it did not start\n");
}

TEST(LaunchedRanks, MistakesAreSaidOnce) {
  const Workspace work;
  work.prepare_data();
  struct Mistake {
    std::vector<std::string> arguments;
    std::string message;
  };
  for (const Mistake& mistake : std::vector<Mistake>{
           {{"--ranks=4"},
            "weft: command line: --ranks=4, but torchrun started the 2 ranks; leave --ranks out, "
            "or start weft without torchrun\n"},
           {{"--transport=threads"},
            "weft: command line: --transport=threads under torchrun, expected shm: the ranks are "
            "processes\n"},
           {{"--max-restarts=1"},
            "weft: command line: --max-restarts=1 under torchrun, expected 0: only torchrun can "
            "start its ranks again, with --resume\n"}}) {
    LaunchedJob job{.arguments = mistake.arguments};
    const std::vector<ProcessResult> ranks = job.run(work);
    EXPECT_EQ(ranks[0].exit_code, 64);
    EXPECT_EQ(ranks[0].errors, mistake.message);
    EXPECT_EQ(ranks[1].exit_code, 64);
    EXPECT_EQ(ranks[1].errors, "");
  }
  // An error after the ranks have found each other.
  LaunchedJob job{.arguments = {"--training.dataset_path=missing.bin"}};
  const std::vector<ProcessResult> ranks = job.run(work);
  EXPECT_EQ(ranks[0].exit_code, 65);
  EXPECT_NE(ranks[0].errors.find("missing.bin"), std::string::npos);
  EXPECT_EQ(ranks[1].errors, "");
}

TEST(LaunchedRanks, SeveralHostsAreRefused) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result =
      run_process({"/usr/bin/env", "RANK=0", "WORLD_SIZE=8", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=4",
                   WEFT_BINARY, "train", "run.toml"},
                  {.folder = work.folder().path()});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_EQ(result.errors,
            "weft: environment: torchrun started 8 ranks, 4 of them on this host, expected all on "
            "one host: ranks of several hosts have no connection\n");
}

}  // namespace
}  // namespace weft

// weft train --ranks: processes and threads give the same bytes, a killed rank is reported, and
// nothing of a job stays behind.
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "base/file.h"
#include "cli/children.h"
#include "cli/workspace.h"

namespace weft {
namespace {

// Losses, gradient norms and validation losses of an elastic run, and its weights.
struct ElasticRun {
  std::vector<std::vector<double>> figures;
  std::string weights;
  bool operator==(const ElasticRun&) const = default;
};

ElasticRun run_elastic(const Workspace& work, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"--debug.deterministic=elastic", "--debug.elastic_shards=4",
                                        "--training.local_batch_size=2", "--model.dropout=0.1",
                                        "--metrics.log_freq=1"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const ProcessResult result = work.train(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  ElasticRun run;
  for (const char* key : {"loss", "grad_norm", "validation_loss"}) {
    run.figures.push_back(work.figures("out/metrics.jsonl", key));
  }
  run.weights = work.folder().read(work.saved("out") + "/model.safetensors");
  std::filesystem::remove_all(work.folder() / "out");
  return run;
}

TEST(TrainRanks, ElasticRunsAreTheSameOnAnyNumberOfProcesses) {
  const Workspace work;
  work.prepare_data();
  const ElasticRun one = run_elastic(work, {});
  ASSERT_EQ(one.figures[0].size(), 6U);
  ASSERT_EQ(one.figures[2].size(), 2U);
  EXPECT_TRUE(run_elastic(work, {"--ranks=2"}) == one);
  EXPECT_TRUE(run_elastic(work, {"--ranks=2", "--training.reduce_every_micro_batch=false"}) == one);
  EXPECT_TRUE(run_elastic(work, {"--ranks=4"}) == one);
  EXPECT_TRUE(run_elastic(work, {"--ranks=4", "--parallelism.zero_stage=1"}) == one);
}

// Memory is not the limit.
TEST(TrainRanks, TooManyOpenFilesNamesTheLimit) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.train({"--ranks=64"}, {.open_file_limit = 40});
  EXPECT_EQ(result.exit_code, 71);
  const std::regex expected(
      "weft: shared memory: cannot make the arena of rank \\d+: Too many open files, the limit of "
      "a "
      "process is 40; raise it with ulimit -n\n");
  EXPECT_TRUE(std::regex_match(result.errors, expected)) << result.errors;
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
  EXPECT_EQ(work.folder().read(work.saved("shm") + "/model.safetensors"),
            work.folder().read(work.saved("threads") + "/model.safetensors"));
}

// How often a file was given each of its names in a folder since the watch began.
class FolderWatch {
 public:
  explicit FolderWatch(const std::string& folder)
      : events_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(::inotify_add_watch(events_.get(), folder.c_str(), IN_MOVED_TO), 0);
  }

  std::map<std::string, int> written() const {
    std::map<std::string, int> counts;
    alignas(inotify_event) char buffer[1 << 16];
    for (ssize_t bytes; (bytes = ::read(events_.get(), buffer, sizeof buffer)) > 0;) {
      for (ssize_t at = 0; at < bytes;) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
        EXPECT_EQ(event->mask & IN_Q_OVERFLOW, 0U);
        ++counts[event->name];
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
    return counts;
  }

 private:
  Descriptor events_;
};

// All ranks compile the same plan, so their dumps would have the same names, and a second writer
// could go unnoticed: it would only replace a file with an identical one.
TEST(TrainRanks, OneRankWritesTheDumps) {
  const Workspace work;
  work.prepare_data();
  for (const std::string transport : {"shm", "threads"}) {
    std::filesystem::create_directory(work.folder() / transport);
    const FolderWatch watch(work.folder() / transport);
    const ProcessResult result =
        work.train({"--ranks", "3", "--transport", transport, "--training.steps=1",
                    "--compile.dump_folder=" + transport});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    std::map<std::string, int> once;
    for (const auto& entry : std::filesystem::directory_iterator(work.folder() / transport)) {
      EXPECT_EQ(entry.path().extension(), ".txt") << entry.path();
      once[entry.path().filename().string()] = 1;
    }
    EXPECT_GT(once.size(), 0U);
    EXPECT_EQ(watch.written(), once);
  }
}

TEST(TrainRanks, AGroupOfOneWritesTheWeightsOfNoGroup) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult alone = work.train({"--job.dump_folder=alone"});
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  for (const char* transport : {"shm", "threads"}) {
    const ProcessResult group = work.train({"--parallelism.data_parallel_shard_degree=1",
                                            "--transport", transport, "--job.dump_folder=group"});
    ASSERT_EQ(group.exit_code, 0) << group.errors;
    EXPECT_TRUE(work.folder().read(work.saved("group") + "/model.safetensors") ==
                work.folder().read(work.saved("alone") + "/model.safetensors"));
  }
}

TEST(TrainRanks, AKilledRankIsNamedAndTheOthersStop) {
  const Workspace work;
  work.prepare_data();
  std::vector<pid_t> ranks;
  ProcessOptions options{.folder = work.folder().path()};
  options.watch = [&](pid_t launcher, const std::string& output, const std::string&) {
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
  options.watch = [&](pid_t launcher, const std::string& output, const std::string&) {
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
      "weft: rank 1 hangs: no heartbeat for [0-9.]+ s at training step [0-9]+, (in|after) .+, "
      "while rank [02] waits at training step [0-9]+, in .+; if the work takes that long, "
      "raise comm.timeout_seconds\nweft: the other 2 ranks stopped; killed after 4 s: 1\n");
  EXPECT_TRUE(std::regex_match(result.errors, message)) << result.errors;
  EXPECT_LT(took.count(), 9.0);
  for (pid_t rank : ranks) EXPECT_FALSE(alive(rank));
}

struct Combination {
  const char* mode;
  const char* bucketing;
  const char* overlap;
  const char* reshard;
  const char* recompute;
  int64_t ranks;
};

// Every combination of the columns' values, except that HSDP needs four ranks or more.
const Combination kPairwise[] = {
    {"ddp", "none", "false", "always", "memory_budget", 3},
    {"ddp", "none", "true", "never", "none", 2},
    {"ddp", "transformer_block", "false", "always", "selective", 4},
    {"ddp", "size", "false", "never", "memory_budget", 4},
    {"ddp", "manual", "true", "never", "none", 8},
    {"ddp", "auto", "true", "never", "full", 2},
    {"ddp", "auto", "true", "always", "selective", 3},
    {"zero1", "none", "false", "never", "full", 4},
    {"zero1", "transformer_block", "true", "never", "full", 3},
    {"zero1", "size", "false", "never", "selective", 2},
    {"zero1", "manual", "false", "always", "memory_budget", 2},
    {"zero1", "auto", "false", "always", "none", 8},
    {"fsdp", "none", "true", "never", "selective", 8},
    {"fsdp", "transformer_block", "false", "always", "none", 2},
    {"fsdp", "size", "true", "never", "none", 3},
    {"fsdp", "manual", "false", "never", "full", 3},
    {"fsdp", "auto", "true", "never", "memory_budget", 4},
    {"hsdp", "none", "true", "never", "none", 4},
    {"hsdp", "transformer_block", "false", "never", "memory_budget", 8},
    {"hsdp", "size", "true", "always", "full", 8},
    {"hsdp", "manual", "false", "always", "selective", 4},
    {"hsdp", "auto", "false", "always", "full", 8},
};

std::vector<std::string> values(const Combination& c) {
  return {c.mode, c.bucketing, c.overlap, c.reshard, c.recompute, std::to_string(c.ranks)};
}

std::vector<std::string> flags(const Combination& combination) {
  const std::string mode = combination.mode;
  const std::string bucketing = combination.bucketing;
  const int64_t ranks = combination.ranks;
  const int64_t copies = mode == "ddp" ? ranks : mode == "hsdp" ? 2 : 1;
  std::vector<std::string> flags = {
      "--ranks=" + std::to_string(ranks),
      "--parallelism.data_parallel_replicate_degree=" + std::to_string(copies),
      "--parallelism.data_parallel_shard_degree=" + std::to_string(ranks / copies),
      "--compile.bucketing=" + bucketing,
      std::string("--compile.overlap=") + combination.overlap,
      std::string("--parallelism.fsdp_reshard_after_forward=") + combination.reshard,
      std::string("--activation_checkpoint.mode=") + combination.recompute};
  if (mode == "zero1") flags.emplace_back("--parallelism.zero_stage=1");
  if (bucketing == "size") flags.emplace_back("--compile.bucket_min_parameters=5000");
  if (bucketing == "manual") {
    flags.emplace_back(
        "--compile.buckets=tok_embeddings+pos_embeddings,layers.0.attention,layers.*,norm");
  }
  return flags;
}

TEST(TrainRanks, CombinationsCoverEveryPair) {
  const size_t columns = values(kPairwise[0]).size();
  for (size_t a = 0; a < columns; ++a) {
    for (size_t b = 0; b < a; ++b) {
      std::set<std::string> of_a, of_b;
      std::set<std::pair<std::string, std::string>> met;
      for (const Combination& combination : kPairwise) {
        const std::vector<std::string> row = values(combination);
        of_a.insert(row[a]);
        of_b.insert(row[b]);
        met.emplace(row[a], row[b]);
      }
      const size_t impossible = of_b.contains("hsdp") && of_a.contains("3") ? 2 : 0;
      EXPECT_EQ(met.size() + impossible, of_a.size() * of_b.size()) << a << " and " << b;
    }
  }
}

// Threads in any mode give these bits; processes must too, whatever the compiler does.
TEST(TrainRanks, ProcessesHaveTheBitsOfThreadsInEveryCombination) {
  const Workspace work;
  work.prepare_data();
  const auto run = [&](std::vector<std::string> arguments, const std::string& out) {
    arguments.insert(arguments.end(),
                     {"--metrics.log_freq=1", "--training.steps=4", "--job.dump_folder=" + out});
    const ProcessResult result = work.train(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return std::pair(work.figures(out + "/metrics.jsonl", "loss"),
                     work.folder().read(work.saved(out) + "/model.safetensors"));
  };
  std::map<int64_t, std::pair<std::vector<double>, std::string>> expected;
  for (const int64_t ranks : {2, 3, 4, 8}) {
    const std::string number = std::to_string(ranks);
    expected[ranks] = run({"--ranks", number, "--transport=threads", "--compile.bucketing=none",
                           "--compile.overlap=false"},
                          "threads" + number);
    ASSERT_EQ(expected[ranks].first.size(), 4U);
  }
  for (const Combination& combination : kPairwise) {
    SCOPED_TRACE(testing::PrintToString(flags(combination)));
    const auto [losses, weights] = run(flags(combination), "shm");
    EXPECT_EQ(losses, expected[combination.ranks].first);
    EXPECT_TRUE(weights == expected[combination.ranks].second) << "weights differ";
    std::filesystem::remove_all(work.folder() / "shm");
  }
}

}  // namespace
}  // namespace weft

// weft bench stops at once on a signal: exit code 130 after INT, 75 after TERM and HUP, no rank
// left behind and no half-written file.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "cli/children.h"
#include "cli/workspace.h"

namespace weft {
namespace {

// Whether the process has a handler for the signal.
bool catches(pid_t process, int signal) {
  std::ifstream status(cat("/proc/", process, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigCgt:")) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
  }
  return false;
}

struct Bench {
  std::string name;
  std::vector<std::string> arguments;
  size_t ranks = 0;       // that it starts; the signal waits for them
  std::string file = {};  // that the signal waits for
};

const Bench kBenches[] = {
    {"comm", {"comm", "--ranks=2", "--mib=1", "--repeats=10000"}, 2},
    {"ops", {"ops", "long.toml", "--repeats=10000"}},
    {"ranks", {"ranks", "long.toml", "--steps=10000"}, 1},
    {"tune", {"tune", "large.toml", "--output=tuning.toml"}, 0, "tuning.toml.partial"},
    {"calibrate_links", {"--calibrate", "--output=spec.toml"}, 2},
    {"calibrate_device", {"--calibrate", "--ranks=1", "--output=spec.toml"}},
};

class BenchStop : public testing::TestWithParam<std::tuple<Bench, int>> {};

TEST_P(BenchStop, EndsAtOnceAndLeavesNothing) {
  const Bench& bench = std::get<0>(GetParam());
  const int signal = std::get<1>(GetParam());
  const Workspace work;
  work.folder().write("long.toml", "[training]\nseq_len = 32\n");
  work.folder().write("large.toml", "[model]\nflavor = \"124M\"\n");
  const auto before = work.tree();
  using Clock = std::chrono::steady_clock;
  std::vector<pid_t> ranks;
  std::optional<Clock::time_point> at_work, sent;
  ProcessOptions options;
  options.watch = [&](pid_t process, const std::string&, const std::string&) {
    if (sent || !catches(process, signal)) return;
    if (!bench.file.empty() && !std::filesystem::exists(work.folder() / bench.file)) return;
    ranks = children_of(process);
    if (ranks.size() < bench.ranks) return;
    if (!at_work) at_work = Clock::now();
    const bool waits = bench.file.empty();  // nothing else shows that it is running
    if (waits && Clock::now() - *at_work < std::chrono::milliseconds(200)) return;
    sent = Clock::now();
    ::kill(process, signal);
  };
  std::vector<std::string> arguments = bench.arguments;
  arguments.insert(arguments.begin(), "bench");
  const ProcessResult result = work.run(arguments, options);
  ASSERT_TRUE(sent) << result.output << result.errors;
  const std::chrono::duration<double> taken = Clock::now() - *sent;
  EXPECT_LT(taken.count(), 10);
  EXPECT_EQ(result.exit_code, signal == SIGINT ? 130 : 75);
  EXPECT_EQ(result.errors, "");
  for (const pid_t rank : ranks) {
    EXPECT_FALSE(std::filesystem::exists(cat("/proc/", rank))) << rank << " is still there";
  }
  EXPECT_EQ(work.tree(), before);
}

INSTANTIATE_TEST_SUITE_P(Cli, BenchStop,
                         testing::Combine(testing::ValuesIn(kBenches),
                                          testing::Values(SIGINT, SIGTERM, SIGHUP)),
                         [](const auto& test) {
                           const int signal = std::get<1>(test.param);
                           return cat(std::get<0>(test.param).name, "_",
                                      signal == SIGINT    ? "sigint"
                                      : signal == SIGTERM ? "sigterm"
                                                          : "sighup");
                         });

// A terminal sends the signal to every process of the job.
TEST(BenchStop, ASignalToTheProcessGroupIsOneStop) {
  const Workspace work;
  std::vector<pid_t> ranks;
  bool sent = false;
  ProcessOptions options;
  options.watch = [&](pid_t process, const std::string& output, const std::string&) {
    if (sent || output.empty()) return;
    ranks = children_of(process);
    if (ranks.size() < 2) return;
    sent = true;
    for (const pid_t rank : ranks) ::kill(rank, SIGINT);
    ::kill(process, SIGINT);
  };
  const ProcessResult result =
      work.run({"bench", "comm", "--ranks=2", "--mib=16,32,64", "--repeats=20"}, options);
  ASSERT_TRUE(sent) << result.output << result.errors;
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.errors, "");
  // Everything measured by then has been printed, in complete lines.
  EXPECT_TRUE(result.output.ends_with('\n')) << result.output;
}

}  // namespace
}  // namespace weft

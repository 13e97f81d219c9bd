// A run that is killed again and again at random moments and resumed each time ends with the bits
// of an undisturbed one. "make soak" sets WEFT_KILL_CYCLES to many more cycles.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "cli/children.h"
#include "cli/faults.h"

namespace weft {
namespace {

constexpr int kDefaultCycles = 50;

int cycles() {
  const char* text = std::getenv("WEFT_KILL_CYCLES");
  return text == nullptr ? kDefaultCycles : std::atoi(text);
}

TEST(KillCycles, EndWithTheBitsOfAnUndisturbedRun) {
  const int count = cycles();
  // Far more steps than all cycles together can do; the last cycle is given few.
  const FaultRun run({"--ranks", "2", "--checkpoint.interval=7", "--checkpoint.keep_latest_k=3",
                      cat("--training.steps=", 40 * count), "--lr_scheduler.decay_type=constant"});
  std::mt19937 random(20261117);
  int64_t reported = -1, torn = 0, commits = 0;
  for (int cycle = 0; cycle < count; ++cycle) {
    const auto delay = std::uniform_int_distribution<int>(5, 250)(random);
    const int victim = std::uniform_int_distribution<int>(0, 3)(random);
    bool killed = false;
    const auto start = std::chrono::steady_clock::now();
    ProcessOptions options{.folder = run.folder().path(), .own_group = true};
    options.watch = [&](pid_t launcher, const std::string&, const std::string&) {
      const auto past = std::chrono::steady_clock::now() - start;
      if (killed || past < std::chrono::milliseconds(delay)) return;
      const std::vector<pid_t> ranks = children_of(launcher);
      const bool one_rank = victim < 2 && ranks.size() == 2;
      const pid_t target = one_rank      ? ranks[static_cast<size_t>(victim)]
                           : victim == 2 ? launcher
                                         : -launcher;
      // There is no group yet if the process has not got that far.
      killed = ::kill(target, SIGKILL) == 0;
    };
    const ProcessResult result = run_process(run.resume_command(), options);
    ASSERT_FALSE(result.timed_out) << cycle;
    const int64_t newest = FaultRun::newest_reported(result.output);
    reported = std::max(reported, newest);
    const auto saved = run.committed();
    EXPECT_GE(saved.empty() ? -1 : saved.back().step, reported) << "cycle " << cycle;
    commits += newest >= 0 ? 1 : 0;
    torn += run.unfinished();
    if (result.exit_code == 0) break;
  }
  run.expect_same_end();
  std::printf("%d kills: %lld with a commit, %lld left an unfinished checkpoint\n", count,
              static_cast<long long>(commits), static_cast<long long>(torn));
}

}  // namespace
}  // namespace weft

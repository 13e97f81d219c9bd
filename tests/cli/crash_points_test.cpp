// A run that is killed at any system call of a save loses nothing that was committed.
#include <gtest/gtest.h>

#include <csignal>

#include "cli/faults.h"

namespace weft {
namespace {

struct Case {
  const char* ranks;
  const char* fault;              // "kill": one process; "killall": the job
  const char* mode = "disabled";  // of saves in the background
};

class CrashPoints : public testing::TestWithParam<Case> {};

// Every call that changes the folder of checkpoints, one after the other, until the run completes.
TEST_P(CrashPoints, LoseNothingThatWasCommitted) {
  const auto& [ranks, fault, mode] = GetParam();
  const FaultRun run({"--ranks", ranks, cat("--checkpoint.async_mode=", mode)});
  int64_t point = 1;
  for (;; ++point) {
    const ProcessResult result = run.run(cat(fault, ":", point));
    ASSERT_FALSE(result.timed_out) << point;
    if (result.exit_code == 0) break;
    SCOPED_TRACE(cat("killed at call ", point));
    EXPECT_TRUE(result.signal == SIGKILL || result.exit_code == 76) << result.exit_code;
    run.expect_nothing_lost(result);
    // Resuming takes as long as the run itself.
    if (point % 5 == 0) run.expect_same_end();
  }
  EXPECT_GT(point, 100);
  run.expect_same_result();
}

INSTANTIATE_TEST_SUITE_P(Cli, CrashPoints,
                         testing::Values(Case{"2", "kill"}, Case{"2", "killall"}, Case{"4", "kill"},
                                         Case{"4", "killall"}, Case{"2", "kill", "async"},
                                         Case{"2", "killall", "async"}),
                         [](const auto& test) {
                           const bool async = std::string_view(test.param.mode) == "async";
                           return cat(test.param.fault, "_of_", test.param.ranks,
                                      async ? "_async" : "");
                         });

}  // namespace
}  // namespace weft

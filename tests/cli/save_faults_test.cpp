// A save of which a system call fails loses nothing, and training continues.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "cli/faults.h"

namespace weft {
namespace {

struct Failure {
  const char* call;
  int error;
  const char* ranks = "1";
};

class FailedCalls : public testing::TestWithParam<Failure> {};

// The first call fails, the second, the third, ... until none does. Training continues; only a
// failure before the first step or in the last save ends it.
TEST_P(FailedCalls, AreReportedAndTrainingContinues) {
  const auto& [call, error, ranks] = GetParam();
  const FaultRun run({"--ranks", ranks});
  bool continued = false;
  for (int64_t number = 1;; ++number) {
    SCOPED_TRACE(cat(call, " ", number));
    const ProcessResult result = run.run(cat(call, ":", error, ":", number));
    ASSERT_FALSE(result.timed_out);
    if (result.exit_code == 0 && result.errors.empty()) {
      EXPECT_GT(number, 1);
      break;
    }
    EXPECT_NE(result.errors.find(std::strerror(error)), std::string::npos) << result.errors;
    run.expect_nothing_lost(result);
    if (result.exit_code == 0) {
      EXPECT_NE(result.errors.find("; training continues\n"), std::string::npos) << result.errors;
      continued = true;
      run.expect_same_result();
    } else {
      EXPECT_EQ(result.exit_code, 73) << result.errors;
    }
  }
  EXPECT_TRUE(continued);
}

INSTANTIATE_TEST_SUITE_P(
    Cli, FailedCalls,
    testing::Values(Failure{"mkdir", ENOSPC}, Failure{"open", EDQUOT}, Failure{"fallocate", ENOSPC},
                    Failure{"fallocate", EDQUOT}, Failure{"pwrite", ENOSPC}, Failure{"pwrite", EIO},
                    Failure{"pwrite", EDQUOT}, Failure{"fsync", EIO}, Failure{"fsync", ENOSPC},
                    Failure{"fsync", EDQUOT}, Failure{"close", EIO}, Failure{"close", ENOSPC},
                    Failure{"close", EDQUOT}, Failure{"rename", EIO}, Failure{"rename", ENOSPC},
                    Failure{"rename", EDQUOT}, Failure{"pwrite", ENOSPC, "2"},
                    Failure{"fsync", EIO, "2"}, Failure{"rename", EDQUOT, "2"}),
    [](const auto& test) {
      return cat(test.param.call, "_", test.param.error, "_on_", test.param.ranks);
    });

TEST(ShortWrites, AreCompleted) {
  const FaultRun run({});
  ASSERT_EQ(run.run("short:1000000").exit_code, 0);
  const auto writes = std::ssize(split(run.folder().read("calls"), '\n')) - 1;
  ASSERT_GE(writes, 20);
  for (int64_t number = 1; number <= writes; ++number) {
    SCOPED_TRACE(number);
    const ProcessResult result = run.run(cat("short:", number));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.errors, "");
    run.expect_same_result();
  }
}

TEST(FailedSaves, ThreeInARowEndTheRun) {
  const FaultRun run({"--training.steps=10"});
  const ProcessResult result = run.run(cat("pwrite:", ENOSPC, ":0"));
  EXPECT_EQ(result.exit_code, 73);
  EXPECT_NE(result.output.find("step 1/10"), std::string::npos) << result.output;
  const std::vector<std::string> lines = split(result.errors, '\n');
  ASSERT_EQ(lines.size(), 5U) << result.errors;
  EXPECT_TRUE(lines[0].starts_with("weft: step 1: checkpoint not saved: ")) << lines[0];
  EXPECT_TRUE(lines[1].ends_with("No space left on device; training continues")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("weft: step 3: checkpoint not saved: ")) << lines[2];
  EXPECT_TRUE(lines[3].starts_with("weft: 3 checkpoints in a row could not be saved: "))
      << lines[3];
  EXPECT_TRUE(run.committed().empty());
}

// Old checkpoints that cannot be removed fill the disk; the run says so, and the next one that can
// remove them does.
TEST(FailedPrune, IsReported) {
  const FaultRun run({"--training.steps=5", "--checkpoint.keep_latest_k=1"});
  const ProcessResult always = run.run(cat("unlinkat:", EIO, ":0"));
  EXPECT_EQ(always.exit_code, 0) << always.errors;
  const std::vector<std::string> lines = split(always.errors, '\n');
  ASSERT_EQ(lines.size(), 5U) << always.errors;
  for (size_t step = 2; step <= 5; ++step) {
    EXPECT_EQ(lines[step - 2],
              cat("weft: step ", step,
                  ": older checkpoints not removed: out/checkpoints/step-1.partial-"
                  "0000000000000000: cannot remove the folder: Input/output error; remove them by "
                  "weft checkpoint prune"));
  }
  EXPECT_EQ(run.committed().back().step, 5);
  run.work().run_ok({"checkpoint", "prune", "out", "--keep-latest=1"});
  run.expect_same_result();
  EXPECT_EQ(run.committed().size(), 1U);
  // One failure, which the next save makes up for.
  const ProcessResult once = run.run(cat("unlinkat:", EIO, ":1"));
  EXPECT_EQ(once.exit_code, 0) << once.errors;
  EXPECT_TRUE(once.errors.starts_with("weft: step 2: older checkpoints not removed: "))
      << once.errors;
  EXPECT_EQ(split(once.errors, '\n').size(), 2U) << once.errors;
  EXPECT_EQ(run.committed().size(), 1U);
  run.expect_same_result();
}

// A slow disk: training continues meanwhile, and a checkpoint that is due is skipped or waited for.
TEST(SlowSaves, AreSkippedOrWaitedFor) {
  const std::vector<std::string> flags = {"--training.steps=20", "--checkpoint.async_mode=async",
                                          "--checkpoint.keep_latest_k=0", "--ranks=2"};
  for (const bool skip : {true, false}) {
    std::vector<std::string> own = flags;
    own.emplace_back(skip ? "--checkpoint.if_busy=skip" : "--checkpoint.if_busy=wait");
    const FaultRun run(own);
    const ProcessResult result = run.run("slow:10");
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    const bool skipped =
        result.output.find("checkpoint skipped: the one before it is still being written") !=
        std::string::npos;
    EXPECT_EQ(skipped, skip) << result.output;
    if (skip) {
      EXPECT_LT(run.committed().size(), 20U);
    } else {
      EXPECT_EQ(run.committed().size(), 20U);
    }
    run.expect_same_result();
  }
}

TEST(FullDisk, IsFoundBeforeTheFirstStep) {
  const FaultRun run({});
  const ProcessResult result = run.run("full:0");
  EXPECT_EQ(result.exit_code, 73);
  EXPECT_EQ(result.errors,
            "weft: out/checkpoints: a checkpoint needs 55.1 KiB, 4 KiB are free; free some space, "
            "set another job.dump_folder, or checkpoint.enable = false\n");
  EXPECT_EQ(result.output, "");
}

// The order that makes a commit durable: every file is on disk before the manifest exists, the
// manifest before the folder gets its name, and the name before the commit is reported.
TEST(SaveOrder, EverythingIsOnDiskBeforeTheManifestAndTheName) {
  const FaultRun run({"--training.steps=1", "--checkpoint.interval=0"});
  ASSERT_EQ(run.run("kill:0").exit_code, 0);
  std::vector<std::string> calls;
  for (std::string line : split(run.folder().read("calls"), '\n')) {
    const size_t at = line.find(".partial-");
    if (at == std::string::npos && line.find("step-") == std::string::npos &&
        !line.starts_with("fsync")) {
      continue;
    }
    if (at != std::string::npos) line.erase(at, 25);
    calls.push_back(line.substr(0, line.find(' ')) + " " + line.substr(line.rfind('/') + 1));
  }
  const auto position = [&](const std::string& call) {
    return std::find(calls.begin(), calls.end(), call) - calls.begin();
  };
  const auto last = static_cast<std::ptrdiff_t>(calls.size());
  const std::ptrdiff_t manifest = position("open manifest.json");
  for (const std::string name : {"model.safetensors", "optimizer.safetensors", "config.json",
                                 "config.toml", "training_state.json"}) {
    EXPECT_LT(position("pwrite " + name), position("fsync " + name)) << name;
    EXPECT_LT(position("fsync " + name), manifest) << name;
  }
  EXPECT_LT(manifest, position("fsync manifest.json"));
  EXPECT_LT(position("fsync manifest.json"), position("fsync step-1"));
  EXPECT_LT(position("fsync step-1"), position("rename step-1"));
  EXPECT_LT(position("rename step-1"), position("fsync checkpoints"));
  EXPECT_LT(position("fsync checkpoints"), last);
}

}  // namespace
}  // namespace weft

// Runs of the built command whose system calls fail or kill at a chosen point (fault_shim.cpp), and
// what must hold afterwards.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/disk.h"
#include "base/text.h"
#include "checkpoint/checkpoint_folder.h"
#include "cli/workspace.h"

namespace weft {

// A Llama so small that a run takes a fraction of a second; checkpoints after steps 1, 2 and 3.
inline constexpr const char* kTinyRun = R"([job]
dump_folder = "out"

[model]
name = "llama"
flavor = "debug"
vocab_size = 64
dim = 16
n_layers = 1
n_heads = 2
n_kv_heads = 1
ffn_dim = 32

[training]
steps = 3
seq_len = 8
local_batch_size = 1

[checkpoint]
interval = 1

[lr_scheduler]
warmup_steps = 1
)";

class FaultRun {
 public:
  explicit FaultRun(std::vector<std::string> flags) : flags_(std::move(flags)) {
    work_.folder().write("tiny.toml", kTinyRun);
    std::vector<std::string> undisturbed = {"train", "tiny.toml", "--job.dump_folder=expected"};
    undisturbed.insert(undisturbed.end(), flags_.begin(), flags_.end());
    work_.run_ok(undisturbed, {.timeout_seconds = kLong});
  }

  const Workspace& work() const { return work_; }
  const TempFolder& folder() const { return work_.folder(); }

  // A run in a new folder, in which this happens; the calls are listed in "calls".
  ProcessResult run(const std::string& fault) const {
    std::filesystem::remove_all(folder() / "out");
    std::filesystem::remove(folder() / "calls");
    folder().write("count", std::string(8, '\0'));
    std::vector<std::string> command = {"/usr/bin/env",
                                        "LD_PRELOAD=" WEFT_FAULT_SHIM,
                                        "FAULT_STATE=" + folder() / "count",
                                        "FAULT_LOG=" + folder() / "calls",
                                        "FAULT=" + fault,
                                        WEFT_BINARY,
                                        "train",
                                        "tiny.toml"};
    command.insert(command.end(), flags_.begin(), flags_.end());
    return run_process(command, {.folder = folder().path(), .own_group = true});
  }

  // Whatever was reported as committed is there and undamaged.
  void expect_nothing_lost(const ProcessResult& result) const {
    const std::vector<CommittedCheckpoint> saved = committed();
    const int64_t newest = saved.empty() ? -1 : saved.back().step;
    EXPECT_GE(newest, newest_reported(result.output)) << result.output << result.errors;
    for (const CommittedCheckpoint& checkpoint : saved) {
      EXPECT_NO_THROW(verify_checkpoint(checkpoint.path, *read_manifest(checkpoint.path)));
    }
  }

  // The command that continues the run.
  std::vector<std::string> resume_command() const {
    std::vector<std::string> again = {WEFT_BINARY, "train", "tiny.toml", "--resume"};
    again.insert(again.end(), flags_.begin(), flags_.end());
    return again;
  }

  // Resumes and expects the bits of the undisturbed run.
  void expect_same_end() const {
    const ProcessResult result =
        run_process(resume_command(), {.folder = folder().path(), .timeout_seconds = kLong});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    expect_same_result();
  }

  void expect_same_result() const {
    for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_TRUE(folder().read(work_.saved("out") + "/" + name) ==
                  folder().read(work_.saved("expected") + "/" + name))
          << name;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder() / "out/checkpoints")) {
      EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
    }
  }

  std::vector<CommittedCheckpoint> committed() const {
    return CheckpointFolder(folder() / "out/checkpoints").committed();
  }

  // Checkpoints that a killed run has left unfinished.
  int64_t unfinished() const {
    int64_t count = 0;
    for (const std::string& name : folder_names(folder() / "out/checkpoints")) {
      count += name.find(".partial-") != std::string::npos ? 1 : 0;
    }
    return count;
  }

  // The newest step that the run has reported as committed; -1: none.
  static int64_t newest_reported(const std::string& output) {
    int64_t newest = -1;
    for (const std::string& line : split(output, '\n')) {
      if (line.find("  committed ") == std::string::npos) continue;
      newest = parse_int(line.substr(5, line.find(' ', 5) - 5)).value();
    }
    return newest;
  }

 private:
  static constexpr double kLong = 1200;

  Workspace work_;
  std::vector<std::string> flags_;
};

}  // namespace weft

// The commands that look after checkpoints, and those that read them.
#include <gtest/gtest.h>

#include <cmath>

#include "base/disk.h"
#include "base/error.h"
#include "checkpoint/safetensors_model.h"
#include "cli/workspace.h"

namespace weft {
namespace {

class Checkpoints : public testing::Test {
 protected:
  Checkpoints() {
    work_.prepare_data();
    EXPECT_EQ(work_
                  .train({"--checkpoint.interval=1", "--checkpoint.keep_latest_k=2",
                          "--checkpoint.keep_every=3"})
                  .exit_code,
              0);
  }
  std::vector<std::string> names() const {
    return folder_names(work_.folder() / "out/checkpoints");
  }

  Workspace work_;
};

TEST_F(Checkpoints, KeepTheLatestAndEveryNth) {
  EXPECT_EQ(names(), (std::vector<std::string>{"step-3", "step-5", "step-6"}));
}

TEST_F(Checkpoints, AreListedVerifiedAndShown) {
  const std::string listed = work_.run_ok({"checkpoint", "ls", "out"}).output;
  EXPECT_NE(listed.find("step 3  out/checkpoints/step-3  "), std::string::npos) << listed;
  EXPECT_NE(listed.find("  1 rank  "), std::string::npos) << listed;
  const std::string verified = work_.run_ok({"checkpoint", "verify", "out"}).output;
  EXPECT_NE(verified.find("ok       out/checkpoints/step-6"), std::string::npos) << verified;
  const std::string shown = work_.run_ok({"checkpoint", "show", "out/checkpoints/step-5"}).output;
  for (const char* part :
       {"step        5  samples 20  seed 1337  skipped 0", "file        model.safetensors  ",
        "tensor      transformer.wte.weight  F32[34,32]",
        "tensor      m.transformer.wte.weight  F32[34,32]", "tensor      adam.count  I32[]"}) {
    EXPECT_NE(shown.find(part), std::string::npos) << part << " in\n" << shown;
  }
}

TEST_F(Checkpoints, AreCompared) {
  const ProcessResult same = work_.run_ok({"checkpoint", "diff", "out", "out/checkpoints/step-6"});
  EXPECT_EQ(same.output, "all tensors are identical\n");
  const ProcessResult other =
      work_.run({"checkpoint", "diff", "out/checkpoints/step-5", "out/checkpoints/step-6"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_NE(other.output.find("step    5 and 6\n"), std::string::npos) << other.output;
  EXPECT_NE(other.output.find("tensor  transformer.wte.weight  "), std::string::npos);
  EXPECT_NE(other.output.find(" elements differ, by at most "), std::string::npos) << other.output;
}

TEST_F(Checkpoints, WeightsAloneAreCheckpointsToo) {
  ASSERT_EQ(work_.train({"--job.dump_folder=alone", "--checkpoint.weights_only=true"}).exit_code,
            0);
  EXPECT_NE(work_.run_ok({"checkpoint", "ls", "alone"}).output.find("  weights only\n"),
            std::string::npos);
  work_.run_ok({"checkpoint", "show", "alone"});
  EXPECT_NE(work_.run_ok({"checkpoint", "diff", "alone", "out"}).output.find("all tensors"),
            std::string::npos);
}

TEST_F(Checkpoints, ArePrunedUnlessTheRunIsActive) {
  {
    const FolderLock lock(work_.folder() / "out/checkpoints");
    EXPECT_EQ(work_.run({"checkpoint", "prune", "out/checkpoints/", "--keep-latest=1"}).exit_code,
              73);
  }
  work_.run_ok({"checkpoint", "prune", "out", "--keep-latest=1"});
  EXPECT_EQ(names(), std::vector<std::string>{"step-6"});
}

// A window of n tokens has the loss that validation during the run has.
TEST_F(Checkpoints, AreEvaluatedAndExported) {
  const double expected = work_.figures("out/metrics.jsonl", "validation_loss").back();
  const std::string evaluated =
      work_.run_ok({"eval", "out", "data/val.bin", "--seq-len", "32", "--batch", "4"}).output;
  const double loss = std::stod(evaluated.substr(evaluated.find(' ')));
  // The run validates on the first eight windows, this command on all.
  EXPECT_NEAR(loss, expected, 0.2) << evaluated;
  work_.run_ok({"export", "out", "model", "--dtype", "bf16", "--max-file-bytes", "20000"});
  EXPECT_TRUE(path_exists(work_.folder() / "model/model.safetensors.index.json"));
  EXPECT_TRUE(path_exists(work_.folder() / "model/tokenizer.json"));
  EXPECT_FALSE(path_exists(work_.folder() / "model/manifest.json"));
  const std::string rounded =
      work_.run_ok({"eval", "model", "data/val.bin", "--seq-len", "32"}).output;
  EXPECT_NEAR(std::stod(rounded.substr(rounded.find(' '))), loss, 0.01) << rounded;
  work_.run_ok({"generate", "model", "--prompt", "The ", "--tokens", "5"});
  // From a checkpoint whose weights are rounded, the full ones are exported.
  ASSERT_EQ(work_.train({"--job.dump_folder=half", "--checkpoint.export_dtype=bfloat16"}).exit_code,
            0);
  work_.run_ok({"export", "half", "full"});
  work_.run_ok({"export", "out", "same"});
  EXPECT_TRUE(work_.folder().read("full/model.safetensors") ==
              work_.folder().read("same/model.safetensors"));
}

// Not even a text that still parses: another epsilon or another vocabulary would be used silently.
TEST_F(Checkpoints, DamagedTextsAreNotUsed) {
  const std::string folder = "out/checkpoints/step-6";
  const std::vector<std::vector<std::string>> commands = {
      {"generate", "out", "--tokens", "3"},
      {"eval", "out", "data/val.bin", "--seq-len", "32"},
      {"export", "out", "exported"},
      {"train", "run.toml", "--job.dump_folder=new", "--checkpoint.initial_load_path=out"},
      {"train", "run.toml", "--job.dump_folder=next", "--model.flavor=" + folder}};
  const std::map<std::string, std::pair<std::string, std::string>> damage = {
      {"config.json", {"\"layer_norm_epsilon\": 1e-05", "\"layer_norm_epsilon\": 3e-05"}},
      {"tokenizer.json", {"\"a\"", "\"~\""}}};
  for (const auto& [name, change] : damage) {
    const std::string path = folder + "/" + name, text = work_.folder().read(path);
    const size_t at = text.find(change.first);
    ASSERT_NE(at, std::string::npos) << text;
    std::string damaged = text;
    damaged.replace(at, change.first.size(), change.second);
    work_.folder().write(path, damaged);
    for (const std::vector<std::string>& words : commands) {
      const ProcessResult result = work_.run(words);
      EXPECT_EQ(result.exit_code, 74) << words[0] << " " << result.errors;
      EXPECT_EQ(result.output, "");
      EXPECT_TRUE(result.errors.starts_with(cat("weft: ", path, ": the block at byte 0 of ")))
          << result.errors;
    }
    work_.folder().write(path, text);
  }
  EXPECT_FALSE(path_exists(work_.folder() / "exported"));
  EXPECT_FALSE(path_exists(work_.folder() / "new"));
  EXPECT_FALSE(path_exists(work_.folder() / "next"));
  for (const std::vector<std::string>& words : commands) work_.run_ok(words);
}

// A run knows where its checkpoints are.
TEST_F(Checkpoints, AreFoundInAnotherFolder) {
  const std::string elsewhere = work_.folder() / "disk/states";
  ASSERT_EQ(work_.train({"--job.dump_folder=far", "--checkpoint.folder=" + elsewhere}).exit_code,
            0);
  ASSERT_EQ(work_.train({"--job.dump_folder=near", "--checkpoint.folder=states"}).exit_code, 0);
  const auto expect = [&](const std::string& run, const std::string& checkpoint) {
    const std::string listed = work_.run_ok({"checkpoint", "ls", run}).output;
    EXPECT_TRUE(listed.starts_with("step 6  " + checkpoint + "  ")) << listed;
    const std::string evaluated =
        work_.run_ok({"eval", run, "data/val.bin", "--seq-len=32"}).output;
    EXPECT_TRUE(evaluated.ends_with("  " + checkpoint + "\n")) << evaluated;
    work_.run_ok({"train", "run.toml", "--job.dump_folder=from_" + run, "--resume=" + run});
    work_.run_ok({"checkpoint", "prune", run, "--keep-latest=1"});
  };
  expect("far", elsewhere + "/step-6");
  expect("near", "near/states/step-6");
}

TEST_F(Checkpoints, MissingOnesAreReported) {
  const auto refused = [&](const std::vector<std::string>& words, int code,
                           const std::string& message) {
    const ProcessResult result = work_.run(words);
    EXPECT_EQ(result.exit_code, code);
    EXPECT_EQ(result.errors, "weft: " + message + "\n");
  };
  refused({"checkpoint", "ls", "nowhere"}, 65,
          "nowhere: no such folder; give the folder of a run or of its checkpoints");
  const std::string none =
      "data: holds no checkpoint; give the folder of a run or of its checkpoints";
  refused({"checkpoint", "verify", "data"}, 65, none);
  refused({"checkpoint", "ls", "data/"}, 65, none);
  refused({"checkpoint", "prune", "data", "--keep-latest=1"}, 65, none);
  refused({"checkpoint", "prune", "out/checkpoints/step-6/", "--keep-latest=1"}, 65,
          "out/checkpoints/step-6: a checkpoint, expected the folder of a run or of its "
          "checkpoints");
  refused({"train", "run.toml", "--resume", "out"}, 64,
          "command line: unexpected argument \"out\"; a value of --resume follows an equals sign: "
          "--resume=out");
  refused({"checkpoint", "prune", "out"}, 64, "command line: --keep-latest is required");
  refused({"export", "out", "data"}, 73, "data: exists already; remove it or give another folder");
  refused({"export", "nowhere", "new"}, 65,
          "nowhere: no such folder; give the folder of a run, of a checkpoint or of a model");
  const ProcessResult longer = work_.run({"eval", "out", "data/val.bin", "--seq-len=100000"});
  EXPECT_EQ(longer.exit_code, 65);
  EXPECT_TRUE(longer.errors.ends_with(
      " tokens, expected at least 100001 for one window of 100000; use more text or a smaller "
      "--seq-len\n"))
      << longer.errors;
}

}  // namespace
}  // namespace weft

// The folder of a run: earlier results are not replaced by accident, and paths of users are found.
#include "train/run_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// A run in the folder "run".
Config config_in(const TempFolder& temp) {
  Config config;
  config.job.dump_folder = temp / "run";
  fs::create_directory(temp / "run");
  return config;
}

// Commits checkpoints without tensors.
void save(const std::string& path, const std::vector<int64_t>& steps) {
  const CheckpointFolder folder(path);
  for (const int64_t step : steps) {
    const std::string partial = folder.partial_path(step, 1);
    folder.begin(partial);
    folder.commit(partial, {.step = step, .files = {}});
  }
}

void expect_used(const Config& config, const std::string& found) {
  expect_user_error(ExitCode::CannotWrite,
                    cat(config.job.dump_folder, ": holds the result of an earlier run (", found,
                        "); continue it with --resume, replace it with --overwrite, or set "
                        "another job.dump_folder"),
                    [&] { check_unused(config); });
}

TEST(RunFolder, PathsOfOutputs) {
  Config config;
  config.job.dump_folder = "runs/a";
  EXPECT_EQ(output_path(config, "m.jsonl"), "runs/a/m.jsonl");
  EXPECT_EQ(output_path(config, "/elsewhere/m.jsonl"), "/elsewhere/m.jsonl");
  EXPECT_EQ(checkpoint_path(config), "runs/a/checkpoints");
  config.checkpoint.folder = "/big_disk/a";
  EXPECT_EQ(checkpoint_path(config), "/big_disk/a");
}

TEST(RunFolder, WithoutAResultItIsUnused) {
  const TempFolder temp;
  Config config = config_in(temp);
  EXPECT_NO_THROW(check_unused(config));
  // A run that ended before its first step leaves these.
  temp.write("run/config.toml", "[job]\n");
  temp.write("run/metrics.jsonl", "");
  const CheckpointFolder folder(checkpoint_path(config));
  folder.begin(folder.partial_path(5, 1));
  EXPECT_NO_THROW(check_unused(config));
  config.job.dump_folder = temp / "missing";
  EXPECT_NO_THROW(check_unused(config));
}

TEST(RunFolder, MetricsAreAResult) {
  const TempFolder temp;
  Config config = config_in(temp);
  expect_used(config, temp.write("run/metrics.jsonl", "{\"step\":1}\n"));
  config.metrics.file = "";
  EXPECT_NO_THROW(check_unused(config));
  config.metrics.file = temp.write("elsewhere.jsonl", "{\"step\":1}\n");
  expect_used(config, temp / "elsewhere.jsonl");
}

TEST(RunFolder, CheckpointsAreAResult) {
  const TempFolder temp;
  const Config config = config_in(temp);
  save(checkpoint_path(config), {5, 10});
  temp.write("run/metrics.jsonl", "{\"step\":1}\n");
  expect_used(config, temp / "run/checkpoints/step-10");
}

TEST(RunFolder, NewerCheckpointsAreNotReplaced) {
  const TempFolder temp;
  const Config config = config_in(temp);
  EXPECT_NO_THROW(check_newest(config, 0));
  save(checkpoint_path(config), {5, 10});
  EXPECT_NO_THROW(check_newest(config, 10));
  EXPECT_NO_THROW(check_newest(config, 11));
  expect_user_error(
      ExitCode::CannotWrite,
      cat("command line: --resume=5: ", temp / "run/checkpoints/step-10",
          " is newer and would be replaced; add --overwrite to remove what comes after step 5, or "
          "set another job.dump_folder and give --resume the folder"),
      [&] { check_newest(config, 5); });
}

TEST(RunFolder, RemovesCheckpointsAfterAStep) {
  const TempFolder temp;
  const Config config = config_in(temp);
  const auto steps = [&] {
    std::vector<int64_t> found;
    for (const auto& saved : CheckpointFolder(checkpoint_path(config)).committed()) {
      found.push_back(saved.step);
    }
    return found;
  };
  save(checkpoint_path(config), {0, 5, 10});
  remove_results(config, 5);
  EXPECT_EQ(steps(), (std::vector<int64_t>{0, 5}));
  remove_results(config, -1);  // a run that starts again
  EXPECT_EQ(steps(), std::vector<int64_t>{});
}

TEST(ResolveWeights, AFileOrAFolderWithWeightsIsMeant) {
  const TempFolder temp;
  const std::string file = temp.write("model.safetensors", "");
  EXPECT_EQ(resolve_weights(file), file);
  fs::create_directory(temp / "hf");
  temp.write("hf/config.json", "{}");
  EXPECT_EQ(resolve_weights(temp / "hf"), temp / "hf");
  // What the user points at comes before what lies in it.
  save(temp / "hf/checkpoints", {5});
  EXPECT_EQ(resolve_weights(temp / "hf"), temp / "hf");
}

TEST(ResolveWeights, TheNewestCheckpointOfARun) {
  const TempFolder temp;
  const Config config = config_in(temp);
  save(checkpoint_path(config), {9, 10});
  const CheckpointFolder folder(checkpoint_path(config));
  folder.begin(folder.partial_path(11, 1));
  const std::string newest = temp / "run/checkpoints/step-10";
  EXPECT_EQ(resolve_weights(temp / "run"), newest);
  EXPECT_EQ(resolve_weights(temp / "run/checkpoints"), newest);
  EXPECT_EQ(resolve_weights(temp / "run/checkpoints/step-9"), temp / "run/checkpoints/step-9");
}

// The reader of the weights says what is missing.
TEST(ResolveWeights, AnythingElseIsReturned) {
  const TempFolder temp;
  const Config config = config_in(temp);
  for (const std::string& path : {temp / "run", temp / "missing", std::string("?")}) {
    EXPECT_EQ(resolve_weights(path), path);
  }
}

}  // namespace
}  // namespace weft

#include "train/trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "config/load.h"
#include "config/tuning.h"
#include "runtime/device.h"
#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

// A run of the smallest GPT-2 on synthetic tokens into `folder`.
Config small_run(const TempFolder& folder, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(),
                   {"--job.dump_folder=" + folder / "run", "--model.dim=16", "--model.n_layers=1",
                    "--training.local_batch_size=2", "--training.seq_len=8", "--training.steps=5",
                    "--lr_scheduler.warmup_steps=0"});
  return parse_config("", "test", overrides);
}

TrainResult train_quietly(const Config& config, bool stop = false) {
  testing::internal::CaptureStdout();
  StopRequest asked;
  if (stop) asked.take(SIGTERM);
  try {
    TrainResult result = train(config, asked, single_rank(), {.resume = {}, .overwrite = true});
    testing::internal::GetCapturedStdout();
    return result;
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
}

TEST(Train, RunsEveryStepAndSavesWeights) {
  const TempFolder folder;
  const TrainResult result = train_quietly(small_run(folder));
  EXPECT_EQ(result.steps, 5);
  EXPECT_GT(result.loss, 0);
  EXPECT_FALSE(result.validation_loss);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.checkpoint, folder / "run/checkpoints/step-5");
  EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoints/step-5/model.safetensors"));
}

// The lines of steps.
std::vector<nlohmann::json> metrics_of(const TempFolder& folder) {
  std::vector<nlohmann::json> rows;
  for (const std::string& line : split(folder.read("run/metrics.jsonl"), '\n')) {
    if (line.find("\"loss\"") != std::string::npos) rows.push_back(nlohmann::json::parse(line));
  }
  return rows;
}

TEST(Train, ReportsTheMemoryThatTheProcessUses) {
  const TempFolder folder;
  train_quietly(small_run(folder));
  const int64_t alone = metrics_of(folder).back().at("memory_bytes");
  constexpr size_t kMore = size_t{256} << 20;
  const std::vector<char> more(kMore, 1);
  train_quietly(small_run(folder));
  const int64_t with_more = metrics_of(folder).back().at("memory_bytes");
  // Freed memory may or may not have been returned to the system in between.
  EXPECT_GT(with_more - alone, static_cast<int64_t>(kMore / 2));
  EXPECT_GE(with_more, static_cast<int64_t>(more.size()));
}

// A step runs at least the FLOPs that are counted, and none of its matmuls exceeds the peak, which
// is measured with the same instructions and no loads; so no step exceeds it either.
TEST(Train, UsesNoMoreThanThePeakOnAnyNumberOfThreads) {
  for (const char* threads : {"1", "2", "16"}) {
    for (const char* precision : {"float32", "bfloat16"}) {
      const TempFolder folder;
      train_quietly(small_run(
          folder, {"--model.dim=128", "--training.seq_len=64", cat("--device.threads=", threads),
                   cat("--training.mixed_precision_param=", precision)}));
      for (const nlohmann::json& row : metrics_of(folder)) {
        EXPECT_GT(row.at("mfu").get<double>(), 0) << row;
        EXPECT_LT(row.at("mfu").get<double>(), 1) << row;
      }
    }
  }
}

TEST(Train, SavesNothingWhenAskedNotTo) {
  const TempFolder folder;
  const TrainResult result =
      train_quietly(small_run(folder, {"--checkpoint.enable=false", "--metrics.file="}));
  EXPECT_EQ(result.checkpoint, "");
  EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoints"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/metrics.jsonl"));
}

TEST(Train, StopsAfterTheStepWhenAsked) {
  const TempFolder folder;
  const TrainResult result = train_quietly(small_run(folder), true);
  EXPECT_EQ(result.steps, 1);
  EXPECT_EQ(result.signal, SIGTERM);
  EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoints/step-1/model.safetensors"));
}

TEST(Train, AStopDuringTheLastStepIsNoInterruption) {
  const TempFolder folder;
  const TrainResult result = train_quietly(small_run(folder, {"--training.steps=1"}), true);
  EXPECT_EQ(result.signal, 0);
}

TEST(Train, StopsAtTheFirstStepThatIsNotFinite) {
  const TempFolder folder;
  const Config config = small_run(
      folder, {"--optimizer.lr=1e30", "--optimizer.weight_decay=0", "--training.nonfinite=stop"});
  expect_user_error(ExitCode::NonFinite,
                    "step 2: loss nan and gradient norm nan are not both finite; the weights of "
                    "the last good step are in " +
                        folder / "run/checkpoints/step-2" +
                        "; lower optimizer.lr or check the data of this step",
                    [&] { train_quietly(config); });
}

TEST(Train, SkipsUpToTheLimit) {
  const TempFolder folder;
  const Config config =
      small_run(folder, {"--optimizer.lr=1e30", "--optimizer.weight_decay=0",
                         "--training.nonfinite_limit=1", "--checkpoint.enable=false"});
  expect_user_error(ExitCode::NonFinite,
                    "step 3: loss nan and gradient norm nan are not both finite, 2 steps in a row "
                    "without an update; lower optimizer.lr or check the data of this step",
                    [&] { train_quietly(config); });
}

// Step 1 makes weights so large that no later step is finite: its weights are the last good ones.
TEST(Train, ARunThatEndsWithinTheLimitKeepsItsLastGoodWeights) {
  const TempFolder folder, shorter;
  const auto run = [](const TempFolder& to, const std::string& option) {
    return train_quietly(small_run(to, {"--optimizer.lr=1e30", "--optimizer.weight_decay=0",
                                        "--lr_scheduler.decay_type=constant", option}));
  };
  const TrainResult result = run(folder, "--training.nonfinite_limit=10");
  EXPECT_EQ(result.steps, 5);
  EXPECT_EQ(result.skipped, 4);
  const TrainResult one = run(shorter, "--training.steps=1");
  EXPECT_EQ(one.skipped, 0);
  EXPECT_TRUE(folder.read("run/checkpoints/step-5/model.safetensors") ==
              shorter.read("run/checkpoints/step-1/model.safetensors"));
}

// The error that an action throws.
template <class Action>
Failure failure_of(Action action) {
  try {
    action();
  } catch (...) {
    return current_failure();
  }
  return {ExitCode::Done, "no error"};
}

// No machine has the GPU for which these algorithms were chosen, and many have none. Both are
// detected when the device is created: after the config checks, before anything is written.
TEST(Train, ARunThatCannotStartLeavesTheLastOneAlone) {
  const TempFolder folder;
  train_quietly(small_run(folder));
  const auto left = [&] {
    std::vector<std::string> texts;
    for (const char* name :
         {"config.toml", "plan.txt", "metrics.jsonl", "checkpoints/step-5/config.json"}) {
      texts.push_back(read_text_file(folder / cat("run/", name), 1 << 20));
    }
    return texts;
  };
  const std::vector<std::string> before = left();
  const std::string tuning = folder.write(
      "tuning.toml", "device = \"none\"\nlibrary = \"none\"\nchoices = [\"call: 1\"]\n");
  const Config config = small_run(folder, {"--device.backend=cuda", "--device.tuning=" + tuning});
  const Failure expected =
      failure_of([&] { find_backend("cuda").make_device({.tuning = load_tuning(config)}); });
  EXPECT_EQ(expected.code, ExitCode::Config) << expected.message;
  const Failure found = failure_of([&] { train_quietly(config); });
  EXPECT_EQ(found.message, expected.message);
  EXPECT_EQ(found.code, expected.code);
  EXPECT_EQ(left(), before);
}

TEST(Train, RefusesAPlanThatTheDeviceCannotHold) {
  const TempFolder folder;
  const std::string spec = folder.write(
      "machine.toml",
      "name = \"small\"\nmatmul_flops_f32 = 1e11\n"
      "matmul_flops_bf16 = 1e11\npeak_flops_f32 = 0\npeak_flops_bf16 = 0\nvector_flops = "
      "0\nmemory_bandwidth = 1e10\n"
      "launch_latency = 1e-6\nmemory_bytes = 1024\ncontext_bytes = 0\ncollectives_bytes = "
      "0\nmatmul_efficiency = "
      "0.7\nunaligned_share = 1\nkernels = []\n"
      "ranks_per_host = 1\nranks_share_memory = false\nlinks = []\n");
  const Config config = small_run(folder, {"--device.spec=" + spec});
  try {
    train_quietly(config);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::OutOfMemory);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

}  // namespace
}  // namespace weft

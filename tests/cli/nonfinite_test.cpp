// An absurd learning rate makes the second step overflow: what each policy does then.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "cli/workspace.h"

namespace weft {
namespace {

const std::vector<std::string> kExplode = {"--optimizer.lr=1e30", "--optimizer.weight_decay=0",
                                           "--lr_scheduler.warmup_steps=0", "--training.steps=20"};

std::vector<std::string> with(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), kExplode.begin(), kExplode.end());
  return overrides;
}

std::vector<bool> skipped_steps(const Workspace& work) {
  std::vector<bool> skipped;
  for (const auto& line : work.metrics("out/metrics.jsonl")) {
    if (line.contains("skipped")) skipped.push_back(line.at("skipped").get<bool>());
  }
  return skipped;
}

void expect_finite_weights(const Workspace& work) {
  const auto file = SafetensorsFile::open(work.folder() / work.saved("out") + "/model.safetensors");
  for (const TensorEntry& entry : file.entries()) {
    const auto bytes = file.bytes(entry);
    for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
      float value;
      std::memcpy(&value, bytes.data() + at, sizeof value);
      ASSERT_TRUE(std::isfinite(value)) << entry.name;
    }
  }
}

TEST(NonFinite, SkipContinuesUpToTheLimit) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.train(with({"--training.nonfinite_limit=2"}));
  EXPECT_EQ(result.exit_code, 78);
  EXPECT_EQ(
      result.errors,
      "weft: step 4: loss nan and gradient norm nan are not both finite, 3 steps in a row "
      "without an update; the weights of the last good step are in out/checkpoints/step-4; lower "
      "optimizer.lr or check the data of this step\n");
  EXPECT_EQ(skipped_steps(work), (std::vector<bool>{false, true, true, true}));
  expect_finite_weights(work);
}

TEST(NonFinite, StopEndsAtOnce) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.train(with({"--training.nonfinite=stop"}));
  EXPECT_EQ(result.exit_code, 78);
  EXPECT_EQ(skipped_steps(work), (std::vector<bool>{false, true}));
  expect_finite_weights(work);
}

TEST(NonFinite, SkippedStepsLeaveTheParametersAlone) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train(with({"--training.nonfinite=stop"})).exit_code, 78);
  const std::string stopped = work.folder().read(work.saved("out") + "/model.safetensors");
  ASSERT_EQ(work.train(with({"--training.nonfinite_limit=5"})).exit_code, 78);
  EXPECT_EQ(work.folder().read(work.saved("out") + "/model.safetensors"), stopped);
}

// The scaler exists to handle overflows of float16 gradients: five in a row do not end a run, even
// one that stops at the first non-finite value.
TEST(NonFinite, StepsThatOnlyShrinkTheLossScaleDoNotCount) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.train(
      {"--training.mixed_precision_param=float16", "--grad_scaler.init_scale=1099511627776",
       "--grad_scaler.backoff_factor=0.0625", "--training.steps=9", "--training.nonfinite=stop"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const std::vector<bool> skipped = skipped_steps(work);
  const auto count = std::count(skipped.begin(), skipped.end(), true);
  EXPECT_GE(count, 5);
  EXPECT_LT(count, 9);
  EXPECT_NE(result.output.find(cat(count, " of 9 steps were skipped because")), std::string::npos)
      << result.output;
  double scale = 0x1p40;
  for (const auto& line : work.metrics("out/metrics.jsonl")) {
    if (!line.contains("skipped")) continue;
    EXPECT_EQ(line.at("loss_scale").get<double>(), scale);
    if (line.at("skipped").get<bool>()) scale /= 16;
  }
}

// A non-finite loss counts at any scale, and so does a gradient once the scale is 1.
TEST(NonFinite, ALossThatIsNotFiniteCountsInFloat16Too) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.train(
      with({"--training.mixed_precision_param=float16", "--training.nonfinite_limit=2"}));
  EXPECT_EQ(result.exit_code, 78);
  EXPECT_EQ(skipped_steps(work), (std::vector<bool>{false, true, true, true}));
}

TEST(NonFinite, WeightsThatAreNotFiniteAreNeverSaved) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.train({"--optimizer.lr=1e38", "--optimizer.weight_decay=0",
                                           "--lr_scheduler.warmup_steps=0", "--training.steps=1"});
  EXPECT_EQ(result.exit_code, 78);
  EXPECT_EQ(result.errors,
            "weft: parameter \"tok_embeddings.weight\" is not finite, so no checkpoint was saved; "
            "lower optimizer.lr\n");
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "out/checkpoints"));
}

}  // namespace
}  // namespace weft

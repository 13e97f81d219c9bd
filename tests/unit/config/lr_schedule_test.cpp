#include "config/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace weft {
namespace {

Config schedule(int64_t steps, int64_t warmup, DecayType type) {
  Config config;
  config.optimizer.lr = 1.0;
  config.training.steps = steps;
  config.lr_scheduler.warmup_steps = warmup;
  config.lr_scheduler.decay_type = type;
  return config;
}

TEST(LrSchedule, WarmUpRisesLinearlyToThePeak) {
  const Config config = schedule(100, 4, DecayType::Constant);
  EXPECT_EQ(learning_rate(config, 0), 0.25);
  EXPECT_EQ(learning_rate(config, 1), 0.5);
  EXPECT_EQ(learning_rate(config, 3), 1.0);
  EXPECT_EQ(learning_rate(config, 4), 1.0);
}

TEST(LrSchedule, ConstantStaysAtThePeak) {
  const Config config = schedule(100, 0, DecayType::Constant);
  EXPECT_EQ(learning_rate(config, 0), 1.0);
  EXPECT_EQ(learning_rate(config, 99), 1.0);
  EXPECT_EQ(learning_rate(config, 1000), 1.0);
}

TEST(LrSchedule, LinearDecaysOverEverythingAfterWarmUp) {
  const Config config = schedule(12, 4, DecayType::Linear);
  EXPECT_EQ(learning_rate(config, 4), 1.0);
  EXPECT_EQ(learning_rate(config, 5), 1.0 - 1.0 / 8);
  EXPECT_EQ(learning_rate(config, 8), 0.5);
  EXPECT_EQ(learning_rate(config, 11), 1.0 / 8) << "the last step must not have rate 0";
  EXPECT_EQ(learning_rate(config, 12), 0.0);
}

TEST(LrSchedule, SqrtFallsFastFirst) {
  const Config config = schedule(16, 0, DecayType::Sqrt);
  EXPECT_EQ(learning_rate(config, 0), 1.0);
  EXPECT_EQ(learning_rate(config, 4), 0.5);
  EXPECT_EQ(learning_rate(config, 9), 0.25);
}

TEST(LrSchedule, CosineIsHalfAtTheMiddle) {
  const Config config = schedule(10, 0, DecayType::Cosine);
  EXPECT_EQ(learning_rate(config, 0), 1.0);
  EXPECT_NEAR(learning_rate(config, 5), 0.5, 1e-15);  // cos(pi/2) is not exactly 0 in doubles
}

TEST(LrSchedule, MinimumFactorIsTheFloor) {
  Config config = schedule(10, 0, DecayType::Linear);
  config.lr_scheduler.min_lr_factor = 0.5;
  EXPECT_EQ(learning_rate(config, 5), 0.75);
  EXPECT_EQ(learning_rate(config, 10), 0.5);
  EXPECT_EQ(learning_rate(config, 999), 0.5);
}

TEST(LrSchedule, WarmUpStableDecay) {
  Config config = schedule(100, 10, DecayType::Linear);
  config.lr_scheduler.decay_ratio = 0.2;
  EXPECT_EQ(lr_decay_steps(config), 20);
  EXPECT_EQ(learning_rate(config, 9), 1.0);
  EXPECT_EQ(learning_rate(config, 50), 1.0);
  EXPECT_EQ(learning_rate(config, 80), 1.0);
  EXPECT_EQ(learning_rate(config, 81), 0.95);
  EXPECT_EQ(learning_rate(config, 90), 0.5);
  EXPECT_EQ(learning_rate(config, 100), 0.0);
}

TEST(LrSchedule, TotalStepsReplacesTheStepsOfTheRun) {
  Config config = schedule(10, 0, DecayType::Linear);
  config.lr_scheduler.total_steps = 20;
  EXPECT_EQ(learning_rate(config, 10), 0.5);
}

TEST(LrSchedule, ARunInsideTheWarmUpNeverDecays) {
  const Config config = schedule(10, 200, DecayType::Cosine);
  EXPECT_EQ(learning_rate(config, 9), 10.0 / 200);
  EXPECT_EQ(learning_rate(config, 199), 1.0);
}

// Cosine from 1e-3 to 1e-4 between steps 100 and 2000, as in nanoGPT's CPU config for Shakespeare.
TEST(LrSchedule, ExpressesCosineToATenthOfThePeak) {
  Config config = schedule(2000, 100, DecayType::Cosine);
  config.optimizer.lr = 1e-3;
  config.lr_scheduler.min_lr_factor = 0.1;
  const double tolerance = 1e-18;  // the two formulas round in a different order
  for (const int64_t step : {100, 101, 500, 1050, 1999}) {
    const double ratio = static_cast<double>(step - 100) / 1900.0;
    const double expected = 1e-4 + 0.5 * (1 + std::cos(std::numbers::pi * ratio)) * (1e-3 - 1e-4);
    EXPECT_NEAR(learning_rate(config, step), expected, tolerance) << step;
  }
  EXPECT_NEAR(learning_rate(config, 2000), 1e-4, tolerance);
}

}  // namespace
}  // namespace weft

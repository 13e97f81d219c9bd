#include "train/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "config/load.h"

namespace weft {
namespace {

Config tiny(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(),
                   {"--training.local_batch_size=2", "--training.seq_len=8", "--model.dim=16",
                    "--model.n_layers=1", "--validation.enable=true"});
  return parse_config("", "test", overrides);
}

// Tokens 0, 1, 2, ... each followed by its successor.
void count_up(Batch& batch, int32_t first = 0) {
  batch.tokens.clear();
  batch.targets.clear();
  for (int32_t i = 0; i < 16; ++i) {
    batch.tokens.push_back(first + i);
    batch.targets.push_back(first + i + 1);
  }
}

StepResult step(Session& session, int64_t number, double lr) {
  return session.train_step({.step = number, .seed = 3, .lr = lr},
                            [](int64_t, Batch& batch) { count_up(batch); });
}

std::vector<float> param(Session& session, size_t i) {
  std::vector<float> values(static_cast<size_t>(count(session.compiled().params[i].shape)));
  session.read_param(i, values);
  return values;
}

TEST(Session, AllocatesWhatThePlanSays) {
  const Config config = tiny();
  Session session(config, compile(config));
  EXPECT_EQ(session.executor().allocated_bytes(), session.compiled().plan.arena_bytes);
}

TEST(Session, ParametersComeBackAsWritten) {
  const Config config = tiny();
  Session session(config, compile(config));
  std::vector<float> values(param(session, 0).size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5F;
  session.write_param(0, values);
  EXPECT_EQ(param(session, 0), values);
}

TEST(Session, InitialValuesFollowTheSeed) {
  const Config config = tiny();
  Session session(config, compile(config));
  session.initialize(1);
  const std::vector<float> first = param(session, 0);
  session.initialize(2);
  EXPECT_NE(param(session, 0), first);
  session.initialize(1);
  EXPECT_EQ(param(session, 0), first);
}

TEST(Session, TheFirstLossIsThatOfTheEvaluation) {
  const Config config = tiny();
  Session session(config, compile(config));
  session.initialize(1);
  Batch batch;
  count_up(batch);
  const double evaluated = session.evaluate({&batch, 1});
  // Untrained, each of the 256 tokens is about equally likely.
  EXPECT_NEAR(evaluated, std::log(256.0), 0.1);
  EXPECT_EQ(step(session, 0, 1e-2).loss, evaluated);
  EXPECT_LT(session.evaluate({&batch, 1}), evaluated);
}

TEST(Session, StepByStepHasTheSameBits) {
  std::vector<std::vector<double>> results;
  for (const char* value : {"false", "true"}) {
    const Config config = tiny({cat("--device.step_by_step=", value)});
    Session session(config, compile(config));
    session.initialize(1);
    std::vector<double>& found = results.emplace_back();
    for (int64_t i = 0; i < 3; ++i) found.push_back(step(session, i, 1e-2).loss);
    Batch batch;
    count_up(batch);
    found.push_back(session.evaluate({&batch, 1}));
    for (const float x : param(session, 0)) found.push_back(x);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(Session, NoLearningRateNoChange) {
  const Config config = tiny();
  Session session(config, compile(config));
  session.initialize(1);
  const std::vector<float> before = param(session, 0);
  const StepResult result = step(session, 0, 0);
  EXPECT_GT(result.grad_norm, 0);
  EXPECT_EQ(param(session, 0), before);
}

// The scaler and Adam state on the device.
struct Counters {
  double scale = 0;
  int32_t good = 0;
  int32_t updates = 0;
  bool operator==(const Counters&) const = default;
};

Counters counters(Session& session) {
  Counters found{.scale = session.loss_scale().value()};
  session.executor().read("loss_scale.good", &found.good, sizeof found.good);
  session.executor().read("adam.count", &found.updates, sizeof found.updates);
  return found;
}

TEST(Session, TheLossScaleGrowsAfterGoodSteps) {
  const Config config = tiny({"--training.mixed_precision_param=float16",
                              "--grad_scaler.init_scale=256", "--grad_scaler.growth_interval=2"});
  Session session(config, compile(config));
  session.initialize(1);
  EXPECT_EQ(counters(session), (Counters{256, 0, 0}));
  EXPECT_EQ(step(session, 0, 1e-3).loss_scale, 256);
  EXPECT_EQ(counters(session), (Counters{256, 1, 1}));
  EXPECT_EQ(step(session, 1, 1e-3).loss_scale, 256);
  EXPECT_EQ(counters(session), (Counters{512, 0, 2}));
}

TEST(Session, AnOverflowShrinksTheScaleAndChangesNothingElse) {
  // 2^60 / 16 tokens is beyond the range of float16.
  const Config config = tiny({"--training.mixed_precision_param=float16",
                              "--grad_scaler.init_scale=1152921504606846976",
                              "--grad_scaler.backoff_factor=8.8817841970012523e-16"});  // 2^-50
  Session session(config, compile(config));
  session.initialize(1);
  const std::vector<float> before = param(session, 0);
  const StepResult skipped = step(session, 0, 1e-3);
  EXPECT_TRUE(std::isfinite(skipped.loss));
  EXPECT_FALSE(std::isfinite(skipped.grad_norm));
  EXPECT_EQ(param(session, 0), before);
  EXPECT_EQ(counters(session), (Counters{1024, 0, 0}));
  EXPECT_TRUE(std::isfinite(step(session, 1, 1e-3).grad_norm));
  EXPECT_EQ(counters(session), (Counters{1024, 1, 1}));
  EXPECT_NE(param(session, 0), before);
}

TEST(Session, TheScaleIsNotInTheNorm) {
  const auto norm = [](const char* scale) {
    const Config config = tiny({"--training.mixed_precision_param=float16",
                                std::string("--grad_scaler.init_scale=") + scale});
    Session session(config, compile(config));
    session.initialize(1);
    return step(session, 0, 1e-3).grad_norm;
  };
  // Below some scale, small gradients of activations underflow float16.
  EXPECT_NEAR(norm("1024") / norm("4096"), 1, 1e-3);
}

TEST(Session, OnlyFloat16HasALossScale) {
  const Config config = tiny({"--training.mixed_precision_param=bfloat16"});
  Session session(config, compile(config));
  session.initialize(1);
  EXPECT_FALSE(session.loss_scale());
  EXPECT_FALSE(step(session, 0, 1e-3).loss_scale);
}

TEST(Session, TargetsBelowZeroDoNotCount) {
  const Config config = tiny();
  Session session(config, compile(config));
  session.initialize(1);
  Batch batch;
  count_up(batch);
  double sum = 0;
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    Batch single = batch;
    for (size_t j = 0; j < single.targets.size(); ++j) {
      if (j != i) single.targets[j] = -1;
    }
    sum += session.evaluate({&single, 1});
  }
  // A mean of 16 f32 values against their f32 sum: a few roundings apart.
  EXPECT_NEAR(session.evaluate({&batch, 1}), sum / 16, 1e-5);
}

TEST(Session, MicroBatchesAddUpToTheBatch) {
  const Config full_config = tiny({"--training.local_batch_size=2"});
  const Config split_config =
      tiny({"--training.local_batch_size=1", "--training.global_batch_size=2"});
  Session full(full_config, compile(full_config));
  Session split(split_config, compile(split_config));
  full.initialize(1);
  split.initialize(1);
  const StepResult a = step(full, 0, 1e-3);
  const StepResult b =
      split.train_step({.step = 0, .seed = 3, .lr = 1e-3}, [](int64_t first_sample, Batch& batch) {
        const int64_t first = first_sample * 8;
        Batch all;
        count_up(all);
        batch.tokens.assign(all.tokens.begin() + first, all.tokens.begin() + first + 8);
        batch.targets.assign(all.targets.begin() + first, all.targets.begin() + first + 8);
      });
  // Sums over the batch are split in two, so roundings differ.
  EXPECT_NEAR(a.loss, b.loss, 1e-5);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5 * a.grad_norm);
}

// The biases of a router follow the loads of its experts, over all micro-batches of a step.
TEST(Session, BalancesRouters) {
  for (const std::string micro : {"2", "4"}) {
    const Config config =
        parse_config("", "test",
                     {"--model.name=deepseek_v3", "--model.flavor=debug", "--model.n_layers=2",
                      "--training.local_batch_size=2", "--training.global_batch_size=" + micro,
                      "--training.seq_len=8", "--optimizer.expert_bias_rate=0.5"});
    Session session(config, compile(config));
    session.initialize(1);
    const StepResult result = step(session, 0, 1e-3);
    ASSERT_TRUE(result.experts.has_value());
    const std::vector<int64_t>& tokens = result.experts->tokens.at(0);
    EXPECT_EQ(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}), std::stoi(micro) * 8 * 3);
    const auto& params = session.compiled().params;
    const auto bias = std::find_if(params.begin(), params.end(), [](const ParamInfo& info) {
      return info.name.ends_with("gate.bias");
    });
    const std::vector<float> values = param(session, static_cast<size_t>(bias - params.begin()));
    const auto mean = static_cast<double>(std::stoi(micro) * 8 * 3) / 8;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto own = static_cast<double>(tokens[i]);
      EXPECT_EQ(values[i], own < mean ? 0.5F : own > mean ? -0.5F : 0.0F) << i;
    }
  }
}

// A router whose logits are all 0 gives every expert the same score: per layer, the auxiliary loss
// is its coefficient, and the z-loss its coefficient times log(experts)^2.
TEST(Session, AddsTheLossesOfRouters) {
  for (const std::string model : {"qwen3_moe", "deepseek_v3"}) {
    const auto loss = [&](const std::vector<std::string>& more) {
      std::vector<std::string> overrides = {"--model.name=" + model,
                                            "--model.flavor=debug",
                                            "--model.n_layers=3",
                                            "--training.local_batch_size=2",
                                            "--training.global_batch_size=4",
                                            "--training.seq_len=8"};
      overrides.insert(overrides.end(), more.begin(), more.end());
      const Config config = parse_config("", "test", overrides);
      Session session(config, compile(config));
      session.initialize(1);
      const auto& params = session.compiled().params;
      for (size_t i = 0; i < params.size(); ++i) {
        if (!params[i].name.ends_with("gate.weight")) continue;
        session.write_param(i, std::vector<float>(static_cast<size_t>(count(params[i].shape))));
      }
      return step(session, 0, 1e-3).loss;
    };
    const double layers = model == "qwen3_moe" ? 3 : 2;
    const double plain = loss({});
    EXPECT_NEAR(loss({"--training.router_aux_loss=0.5"}), plain + layers * 0.5, 1e-5) << model;
    EXPECT_NEAR(loss({"--training.router_z_loss=0.25"}),
                plain + layers * 0.25 * std::pow(std::log(8.0), 2), 1e-5)
        << model;
  }
}

}  // namespace
}  // namespace weft

#include "train/metrics.h"

#include <gtest/gtest.h>

#include <filesystem>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

StepMetrics sample() {
  return {.step = 10,
          .steps = 2000,
          .loss = 3.14159,
          .grad_norm = 1.25,
          .lr = 1e-3,
          .seconds = 0.25,
          .tokens_per_second = 41200,
          .mfu = 0.31,
          .memory_bytes = int64_t{3} << 29,
          .eta_seconds = 185,
          .skipped = false};
}

TEST(MetricsLine, IsReadByPeople) {
  EXPECT_EQ(to_line(sample()),
            "step 10/2000  loss 3.1416  grad norm 1.250  lr 0.001  41.2 k tok/s  mfu 31.0 %  "
            "mem 1.5 GiB  eta 3 min 05 s");
}

TEST(MetricsLine, SaysWhenAnUpdateWasSkipped) {
  StepMetrics metrics = sample();
  metrics.loss = std::copysign(kNan, -1.0);
  metrics.grad_norm = kInfinity;
  metrics.skipped = true;
  const std::string line = to_line(metrics);
  EXPECT_NE(line.find("loss nan  grad norm inf"), std::string::npos) << line;
  EXPECT_TRUE(line.ends_with("  skipped: not finite")) << line;
}

TEST(MetricsLine, LeavesOutMfuWhereThePeakIsNotKnown) {
  StepMetrics metrics = sample();
  metrics.mfu.reset();
  EXPECT_NE(to_line(metrics).find("41.2 k tok/s  mem 1.5 GiB"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(to_json(metrics)).at("mfu").is_null());
}

TEST(MetricsLine, SaysTheLossScale) {
  StepMetrics metrics = sample();
  metrics.loss_scale = 65536;
  EXPECT_TRUE(to_line(metrics).ends_with("  eta 3 min 05 s  scale 65536")) << to_line(metrics);
  metrics.skipped = true;
  EXPECT_TRUE(to_line(metrics).ends_with("  scale 65536  skipped: not finite"));
  EXPECT_EQ(nlohmann::json::parse(to_json(metrics)).at("loss_scale"), 65536);
  EXPECT_FALSE(nlohmann::json::parse(to_json(sample())).contains("loss_scale"));
}

TEST(MetricsJson, HoldsEveryFigureExactly) {
  const auto json = nlohmann::json::parse(to_json(sample()));
  EXPECT_EQ(json.at("step"), 10);
  EXPECT_EQ(json.at("loss").get<double>(), 3.14159);
  EXPECT_EQ(json.at("grad_norm").get<double>(), 1.25);
  EXPECT_EQ(json.at("lr").get<double>(), 1e-3);
  EXPECT_EQ(json.at("seconds").get<double>(), 0.25);
  EXPECT_EQ(json.at("tokens_per_second").get<double>(), 41200);
  EXPECT_EQ(json.at("mfu").get<double>(), 0.31);
  EXPECT_EQ(json.at("memory_bytes"), int64_t{3} << 29);
  EXPECT_EQ(json.at("skipped"), false);
}

TEST(MetricsJson, WhatIsNotFiniteBecomesNull) {
  StepMetrics metrics = sample();
  metrics.loss = kNan;
  metrics.grad_norm = -kInfinity;
  const auto json = nlohmann::json::parse(to_json(metrics));
  EXPECT_TRUE(json.at("loss").is_null());
  EXPECT_TRUE(json.at("grad_norm").is_null());
}

TEST(MetricsLog, WritesALineForEachStepAndValidation) {
  const TempFolder folder;
  {
    MetricsLog log(folder / "m.jsonl", 1000);
    log.step(sample());
    log.validation(10, 2.5);
    log.validation(11, kNan);
    // Lines can be read during the run.
    EXPECT_EQ(folder.read("m.jsonl"), to_json(sample()) +
                                          "\n{\"step\":10,\"validation_loss\":2.5}\n"
                                          "{\"step\":11,\"validation_loss\":null}\n");
  }
  MetricsLog again(folder / "m.jsonl", 1000);
  EXPECT_EQ(folder.read("m.jsonl"), "");
}

TEST(MetricsLog, AnEmptyPathWritesNothing) {
  MetricsLog log("", 1000);
  EXPECT_NO_THROW(log.step(sample()));
}

TEST(MetricsLog, SaysWhyItCannotWrite) {
  const TempFolder folder;
  const std::string path = folder / "missing/m.jsonl";
  expect_user_error(ExitCode::CannotWrite, path + ": cannot write: No such file or directory",
                    [&] { MetricsLog log(path, 1); });
}

TEST(MetricsLog, AFailedWriteIsToldOnceAndAtTheEnd) {
  MetricsLog full("/dev/full", 1000);
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  EXPECT_EQ(full.missing(), "");
  full.validation(7, 1.0);
  full.validation(8, 1.0);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "weft: /dev/full: cannot write: No space left on device; training continues without it\n");
  EXPECT_EQ(full.missing(), "/dev/full: incomplete, the metrics from step 7 on are missing");
}

TEST(MetricsLog, KnowsThatItsFileIsGone) {
  const TempFolder folder;
  const MetricsLog log(folder / "m.jsonl", 1);
  EXPECT_EQ(log.missing(), "");
  std::filesystem::remove(folder / "m.jsonl");
  EXPECT_EQ(log.missing(), folder / "m.jsonl" + ": removed during the run, its metrics are lost");
}

TEST(MetricsLog, PrintsEveryLogFreqthStepAndSkippedOnes) {
  MetricsLog log("", 10);
  testing::internal::CaptureStdout();
  for (int64_t step = 1; step <= 25; ++step) {
    StepMetrics metrics = sample();
    metrics.step = step;
    metrics.steps = 25;
    metrics.skipped = step == 13;
    log.step(metrics);
  }
  const std::string text = testing::internal::GetCapturedStdout();
  std::vector<int64_t> shown;
  for (int64_t step = 1; step <= 25; ++step) {
    if (text.find("step " + std::to_string(step) + "/25 ") != std::string::npos) {
      shown.push_back(step);
    }
  }
  EXPECT_EQ(shown, (std::vector<int64_t>{1, 10, 13, 20, 25}));
}

// The keys of a JSON object in the order of the file.
std::vector<std::string> keys_of(const nlohmann::ordered_json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

// A run that was killed after step 12 continues from the checkpoint of step 10.
TEST(MetricsLog, ContinuesAfterTheStepsThatAreDone) {
  const TempFolder folder;
  const std::string kept =
      "{\"step\":9,\"loss\":2.5,\"skipped\":false}\n"
      "{\"step\":10,\"loss\":null,\"skipped\":true}\n"
      "{\"step\":10,\"validation_loss\":2.25}\n"
      "{\"step\":10,\"checkpoint\":\"a, b\",\"manifest\":\"0\"}\n";
  const std::string path =
      folder.write("m.jsonl", kept +
                                  "{\"step\":11,\"loss\":2.5}\n"
                                  "not a step\n"
                                  "{\"step\":1x,\"loss\":2.5}\n"
                                  "\n"
                                  "{\"step\":100,\"validation_loss\":2.25}\n"
                                  "{\"step\":12,\"checkpoint\":\"c\",\"manifest\":\"0\"}\n"
                                  "{\"step\":9,\"lo");  // what a kill left of a line
  {
    MetricsLog log(path, 1000, 10);
    EXPECT_EQ(folder.read("m.jsonl"), kept);
    log.validation(11, 2.0);
    EXPECT_EQ(log.missing(), "");
  }
  EXPECT_EQ(folder.read("m.jsonl"), kept + "{\"step\":11,\"validation_loss\":2}\n");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"m.jsonl"});
}

TEST(MetricsLog, ContinuesWithoutAnEarlierFile) {
  const TempFolder folder;
  MetricsLog log(folder / "m.jsonl", 1000, 10);
  log.validation(11, 2.0);
  EXPECT_EQ(folder.read("m.jsonl"), "{\"step\":11,\"validation_loss\":2}\n");
}

// Torn at every byte: complete lines remain, whatever the last one was.
TEST(MetricsLog, ATornLineNeverRemains) {
  const TempFolder folder;
  const std::string first = "{\"step\":1,\"loss\":2.5}\n";
  const std::string second = "{\"step\":2,\"loss\":2.5}\n";
  for (size_t size = 0; size <= second.size(); ++size) {
    const std::string path = folder.write("m.jsonl", first + second.substr(0, size));
    const MetricsLog log(path, 1000, 2);
    EXPECT_EQ(folder.read("m.jsonl"), size == second.size() ? first + second : first);
  }
}

TEST(MetricsLog, TheFirstStepAfterAResumeIsShown) {
  MetricsLog log("", 1000, 9);
  testing::internal::CaptureStdout();
  log.step(sample());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), to_line(sample()) + "\n");
}

TEST(MetricsLog, ACommittedCheckpoint) {
  const TempFolder folder;
  MetricsLog log(folder / "m.jsonl", 1000);
  testing::internal::CaptureStdout();
  log.checkpoint({.step = 10,
                  .path = "run/checkpoints/step-10",
                  .digest = "0123",
                  .error = "",
                  .bytes = int64_t{3} << 29,
                  .seconds = 1.5,
                  .blocked_seconds = 0.25,
                  .removed = {5, 6}},
                 false);
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "step 10  committed run/checkpoints/step-10  1.5 GiB in 1.50 s  0123\n"
            "step 5  checkpoint removed\n"
            "step 6  checkpoint removed\n");
  const auto json = nlohmann::ordered_json::parse(folder.read("m.jsonl"));
  EXPECT_EQ(keys_of(json), (std::vector<std::string>{"step", "checkpoint", "manifest", "seconds",
                                                     "blocked_seconds"}));
  EXPECT_EQ(json.at("step"), 10);
  EXPECT_EQ(json.at("checkpoint"), "run/checkpoints/step-10");
  EXPECT_EQ(json.at("manifest"), "0123");
  EXPECT_EQ(json.at("seconds"), 1.5);
  EXPECT_EQ(json.at("blocked_seconds"), 0.25);
}

TEST(MetricsLog, AFailedSaveIsToldAndNotLogged) {
  const TempFolder folder;
  MetricsLog log(folder / "m.jsonl", 1000);
  testing::internal::CaptureStderr();
  const SaveOutcome save{.step = 10, .path = "", .digest = "", .error = "a: full", .removed = {}};
  log.checkpoint(save, false);
  log.checkpoint(save, true);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "weft: step 10: checkpoint not saved: a: full; training continues\n"
            "weft: step 10: checkpoint not saved: a: full\n");
  EXPECT_EQ(folder.read("m.jsonl"), "");
}

// The path is the user's: it may hold what JSON must escape.
TEST(MetricsLog, AResumeNamesTheCheckpoint) {
  const TempFolder folder;
  for (const char* name : {"plain", "with \" and \\"}) {
    const std::string path = folder / name;
    MetricsLog log(folder / "m.jsonl", 1000);
    testing::internal::CaptureStdout();
    log.resumed({.step = 10, .checkpoint = path, .digest = "a1b2", .seconds = 0.25});
    EXPECT_EQ(testing::internal::GetCapturedStdout(),
              cat("resumed  from ", path, " after step 10, loaded in 0.25 s\n"));
    const auto json = nlohmann::ordered_json::parse(folder.read("m.jsonl"), nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << folder.read("m.jsonl");
    EXPECT_EQ(keys_of(json), (std::vector<std::string>{"step", "resumed_from", "manifest"}));
    EXPECT_EQ(json.at("step"), 10);
    EXPECT_EQ(json.at("resumed_from"), path);
    EXPECT_EQ(json.at("manifest"), "a1b2");
  }
}

// Two layers: one even, one with an idle expert.
TEST(MetricsLine, SaysHowEvenlyExpertsAreUsed) {
  StepMetrics metrics = sample();
  EXPECT_FALSE(nlohmann::json::parse(to_json(metrics)).contains("experts"));
  metrics.experts = ExpertLoad{{{4, 4, 4, 4}, {8, 0, 4, 4}}};
  const nlohmann::json experts = nlohmann::json::parse(to_json(metrics)).at("experts");
  EXPECT_EQ(experts.at("load"), 2);
  EXPECT_EQ(experts.at("idle"), 1);
  EXPECT_NEAR(experts.at("entropy").get<double>(), (1 + 0.75) / 2, 1e-12);
  EXPECT_EQ(experts.at("tokens"), nlohmann::json::parse("[[4,4,4,4],[8,0,4,4]]"));
}

}  // namespace
}  // namespace weft

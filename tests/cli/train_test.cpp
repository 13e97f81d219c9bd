// weft train from text to weights: what it writes, and that a run is reproducible.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "cli/workspace.h"

namespace weft {
namespace {

TEST(Train, WritesMetricsConfigPlanAndWeights) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.train({"--metrics.log_freq=2"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  for (const char* part :
       {"step 1/6  loss ", "step 2/6", "step 4/6", "step 6/6", "tok/s", "mfu",
        "step 3  validation loss ", "step 6  validation loss ",
        "wrote out/config.toml, out/plan.txt, out/metrics.jsonl, out/checkpoints/step-6/"}) {
    EXPECT_NE(result.output.find(part), std::string::npos) << part << " in\n" << result.output;
  }
  EXPECT_EQ(result.output.find("step 3/6"), std::string::npos) << result.output;

  const auto lines = work.metrics("out/metrics.jsonl");
  ASSERT_EQ(lines.size(), 9U);  // 6 steps, 2 validations, a checkpoint
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(lines[i].at("step"), i + 1);
  EXPECT_EQ(lines[3].at("step"), 3);
  const std::vector<double> losses = work.figures("out/metrics.jsonl", "loss");
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(work.figures("out/metrics.jsonl", "lr").front(), 5e-3);
  for (const double rate : work.figures("out/metrics.jsonl", "tokens_per_second")) {
    EXPECT_GT(rate, 0);
  }

  const auto weights =
      SafetensorsFile::open(work.folder() / work.saved("out") + "/model.safetensors");
  EXPECT_NE(weights.find("transformer.wte.weight"), nullptr);
  const auto config = nlohmann::json::parse(work.folder().read(work.saved("out") + "/config.json"));
  EXPECT_EQ(config.at("model_type"), "gpt2");
  EXPECT_EQ(config.at("n_embd"), 32);
  for (const auto& [name, text] : work.tree()) {
    EXPECT_EQ(name.find(".partial"), std::string::npos) << name;
  }
}

// The lines before the first step.
std::vector<std::string> headline_of(const ProcessResult& result) {
  const std::vector<std::string> lines = split(result.output, '\n');
  const auto first = std::find_if(lines.begin(), lines.end(),
                                  [](const auto& l) { return l.starts_with("step "); });
  return {lines.begin(), first};
}

TEST(Train, SaysWhatItTrainsBeforeTheFirstStep) {
  const Workspace work;
  work.prepare_data();
  const std::vector<std::string> lines = headline_of(work.train({}));
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_TRUE(std::regex_match(
      lines[0],
      std::regex("model    gpt2 \\(changed from tiny\\): 2[0-9.]+ k parameters, 2 layers, 32 "
                 "wide, 4 heads, [0-9]+ token ids")))
      << lines[0];
  EXPECT_EQ(lines[1], "weights  random, seed 1337");
  EXPECT_EQ(lines[2], "batch    4 sequences x 32 tokens = 128 tokens per step, float32");
  EXPECT_EQ(lines[3], "ranks    1");
  EXPECT_TRUE(std::regex_match(lines[4], std::regex("memory   [0-9.]+ [KM]iB planned")))
      << lines[4];
  EXPECT_TRUE(std::regex_match(
      lines[5], std::regex("time     [0-9.]+ [mu]s per step, [0-9.]+ s for 6 steps \\(rough: from "
                           "the built-in rates "
                           "of cpu; weft bench --calibrate measures this machine\\)")))
      << lines[5];

  const std::vector<std::string> next =
      headline_of(work.train({"--checkpoint.initial_load_path=out", "--job.dump_folder=next"}));
  ASSERT_EQ(next.size(), 6U);
  EXPECT_EQ(next[1], "weights  from out/checkpoints/step-6");
}

TEST(Train, AFolderThatGivesSizesOnlyIsAWarning) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({}).exit_code, 0);
  const std::string saved = "./" + work.saved("out");
  work.folder().write("sizes.toml", "[model]\nflavor = \"" + saved + "\"\n");
  const std::vector<std::string> run = {"train", "sizes.toml", "--training.steps=1",
                                        "--training.seq_len=32", "--job.dump_folder=next"};
  std::vector<std::string> lines = headline_of(work.run_ok(run));
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_TRUE(lines[0].starts_with("model    gpt2 " + saved + ": ")) << lines[0];
  EXPECT_EQ(lines[1], "weights  random, seed 1337");
  EXPECT_EQ(lines[6],
            "WARNING  sizes.toml:2: model.flavor = \"" + saved +
                "\" gives sizes only, so the weights are random; to start from those in the "
                "folder, add --checkpoint.initial_load_path=" +
                saved);
  std::vector<std::string> loaded = run;
  loaded.insert(loaded.end(), {"--checkpoint.initial_load_path=" + saved, "--overwrite"});
  EXPECT_EQ(headline_of(work.run_ok(loaded)).size(), 6U);
}

TEST(Train, TheResolvedConfigRepeatsTheRun) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({"--model.dropout=0.1", "--optimizer.lr=3e-3"}).exit_code, 0);
  const auto first = work.tree();
  const ProcessResult again = work.run({"train", "out/config.toml", "--job.dump_folder=again"});
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  for (const char* figure : {"loss", "grad_norm", "lr", "validation_loss"}) {
    EXPECT_EQ(work.figures("out/metrics.jsonl", figure),
              work.figures("again/metrics.jsonl", figure));
  }
  EXPECT_EQ(first.at(work.saved("out") + "/model.safetensors"),
            work.folder().read(work.saved("again") + "/model.safetensors"));
}

TEST(Train, AbsolutePathsStayWhatTheyAre) {
  const Workspace work;
  work.prepare_data();
  const std::string other = work.folder() / "other";
  std::filesystem::create_directory(other);
  const ProcessResult result =
      work.train({"--checkpoint.folder=" + other + "/w", "--metrics.file=" + other + "/m.jsonl"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.output.find("wrote out/config.toml, out/plan.txt, " + other + "/m.jsonl, " +
                               other + "/w/step-6/\n"),
            std::string::npos)
      << result.output;
  EXPECT_EQ(work.metrics("other/m.jsonl").size(), 9U);  // six steps, two validations, a checkpoint
  EXPECT_TRUE(std::filesystem::exists(work.folder() / "other/w/step-6/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "out/checkpoints"));
}

TEST(Train, SavedWeightsContinueWhereTheyStopped) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({}).exit_code, 0);
  const std::vector<double> saved = work.figures("out/metrics.jsonl", "validation_loss");
  // With a tiny learning rate, one step does not change the printed digits of the loss.
  const ProcessResult result =
      work.train({"--checkpoint.initial_load_path=out", "--job.dump_folder=next",
                  "--training.steps=1", "--optimizer.lr=1e-30"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(work.figures("next/metrics.jsonl", "validation_loss").back(), saved.back());
  EXPECT_EQ(work.folder().read(work.saved("next") + "/model.safetensors"),
            work.folder().read(work.saved("out") + "/model.safetensors"));
}

// A folder provides the sizes that the config leaves out; the config takes precedence.
TEST(Train, AFolderGivesSizesAndWeights) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({}).exit_code, 0);
  const std::string config(kSmallConfig);
  const std::string sizes = "flavor = \"tiny\"\nvocab_size = -1\ndim = 32\nn_layers = 2\n";
  ASSERT_NE(config.find(sizes), std::string::npos);
  work.folder().write("tuned.toml",
                      std::string(config).replace(config.find(sizes), sizes.size(),
                                                  "flavor = \"./" + work.saved("out") + "\"\n"));
  const std::vector<std::string> tune = {"train",
                                         "tuned.toml",
                                         "--checkpoint.initial_load_path=out",
                                         "--job.dump_folder=next",
                                         "--training.steps=1",
                                         "--optimizer.lr=1e-30"};
  work.run_ok(tune);
  EXPECT_EQ(work.folder().read(work.saved("next") + "/model.safetensors"),
            work.folder().read(work.saved("out") + "/model.safetensors"));
  EXPECT_EQ(work.folder().read(work.saved("next") + "/config.json"),
            work.folder().read(work.saved("out") + "/config.json"));
  std::vector<std::string> wider = tune;
  wider.emplace_back("--model.dim=64");
  EXPECT_EQ(work.run(wider).exit_code, 65);  // the weights are narrower
}

// The begin and end tokens of a config.json are kept when its weights are trained further.
TEST(Train, TokenIdsOfLoadedWeightsAreKept) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({}).exit_code, 0);
  auto config = nlohmann::json::parse(work.folder().read(work.saved("out") + "/config.json"));
  EXPECT_TRUE(config.at("bos_token_id").is_null());
  config["bos_token_id"] = 3;
  config["eos_token_id"] = {4, 5};
  // A changed checkpoint is a damaged one, but an exported folder is the user's.
  work.run_ok({"export", "out", "mine"});
  work.folder().write("mine/config.json", config.dump());
  ASSERT_EQ(work.train({"--checkpoint.initial_load_path=mine", "--job.dump_folder=next"}).exit_code,
            0);
  const auto next = nlohmann::json::parse(work.folder().read(work.saved("next") + "/config.json"));
  EXPECT_EQ(next.at("bos_token_id"), 3);
  EXPECT_EQ(next.at("eos_token_id"), (std::vector<int>{4, 5}));
}

// float16 rounds to 11 bits: 60 steps at a rate at which the loss falls steadily. No step may
// differ by more than a few times that rounding.
TEST(Train, Float16LearnsAsFloat32Does) {
  const Workspace work;
  work.prepare_data();
  const std::vector<std::string> common = {"--training.steps=60", "--optimizer.lr=1e-3",
                                           "--lr_scheduler.decay_type=constant"};
  std::vector<std::string> low = common;
  low.insert(low.end(), {"--training.mixed_precision_param=float16", "--job.dump_folder=float16"});
  ASSERT_EQ(work.train(common).exit_code, 0);
  ASSERT_EQ(work.train(low).exit_code, 0);
  const std::vector<double> f32 = work.figures("out/metrics.jsonl", "loss");
  const std::vector<double> f16 = work.figures("float16/metrics.jsonl", "loss");
  EXPECT_LT(f32.back(), 0.75 * f32.front());
  for (size_t i = 0; i < f32.size(); ++i) EXPECT_NEAR(f16.at(i) / f32[i], 1, 2e-4) << i;
  EXPECT_NE(f16, f32);
}

struct Variant {
  const char* name;
  std::vector<std::string> overrides;
};

class TrainVariants : public testing::TestWithParam<Variant> {};

TEST_P(TrainVariants, Run) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.train(GetParam().overrides);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const std::vector<double> losses = work.figures("out/metrics.jsonl", "loss");
  ASSERT_EQ(losses.size(), 6U);
  EXPECT_LT(losses.back(), losses.front());
}

INSTANTIATE_TEST_SUITE_P(
    Cli, TrainVariants,
    testing::Values(Variant{"dropout", {"--model.dropout=0.2"}},
                    Variant{"accumulation", {"--training.global_batch_size=12"}},
                    Variant{"bfloat16", {"--training.mixed_precision_param=bfloat16"}},
                    Variant{"float16", {"--training.mixed_precision_param=float16"}},
                    Variant{"bfloat16_gradients", {"--training.mixed_precision_reduce=bfloat16"}},
                    Variant{"export", {"--checkpoint.export_dtype=bfloat16"}},
                    Variant{"recompute", {"--activation_checkpoint.mode=full"}},
                    Variant{"reference", {"--device.backend=reference"}},
                    Variant{"one_thread", {"--device.threads=1", "--checkpoint.enable=false"}},
                    Variant{"llama",
                            {"--model.name=llama", "--model.flavor=debug", "--model.n_heads=4",
                             "--model.n_kv_heads=2", "--model.ffn_dim=64"}}),
    [](const auto& variant) { return std::string(variant.param.name); });

}  // namespace
}  // namespace weft

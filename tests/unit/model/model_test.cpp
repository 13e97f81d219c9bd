#include "model/model.h"

#include <gtest/gtest.h>

#include <map>

#include "graph/verify.h"
#include "model/hf_config.h"
#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

ModelConfig flavor(std::string name, std::string flavor) {
  ModelConfig config;
  config.name = std::move(name);
  config.flavor = std::move(flavor);
  return config;
}

TEST(Model, EveryPresetBuildsWithItsPublishedSize) {
  const std::map<std::string, int64_t> published = {{"gpt2 tiny", 120'576},
                                                    {"gpt2 baby", 10'745'088},
                                                    {"gpt2 124M", 124'439'808},
                                                    {"gpt2 350M", 354'823'168},
                                                    {"gpt2 774M", 774'030'080},
                                                    {"gpt2 1558M", 1'557'611'200},
                                                    {"llama debug", 6'163'712},
                                                    {"llama 1B", 1'235'814'400},
                                                    {"llama 3B", 3'212'749'824},
                                                    {"llama 8B", 8'030'261'248},
                                                    {"llama 70B", 70'553'706'496},
                                                    {"llama 405B", 405'853'388'800},
                                                    {"llama llama2-7B", 6'738'415'616},
                                                    {"qwen3 debug", 5'836'608},
                                                    {"qwen3 0.6B", 596'049'920},
                                                    {"qwen3 1.7B", 1'720'574'976},
                                                    {"qwen3 4B", 4'022'468'096},
                                                    {"qwen3 8B", 8'190'735'360},
                                                    {"qwen3 14B", 14'768'307'200},
                                                    {"qwen3 32B", 32'762'123'264},
                                                    {"qwen3_moe debug", 9'912'128},
                                                    {"qwen3_moe 30B-A3B", 30'532'122'624},
                                                    {"qwen3_moe 235B-A22B", 235'093'634'560},
                                                    {"deepseek_v3 debug", 6'349'720},
                                                    {"deepseek_v3 16B", 15'960'110'208},
                                                    {"deepseek_v3 671B", 671'026'419'200},
                                                    {"llama4 debug", 8'329'472},
                                                    {"llama4 scout", 107'769'861'120},
                                                    {"llama4 maverick", 400'711'848'960}};
  size_t presets = 0;
  for (const ModelDef* def : all_models()) {
    for (const ModelSpec& preset : def->presets()) {
      const std::string name = preset.model + " " + preset.flavor;
      const BuiltModel model = build_model(preset, {.batch = 1, .seq_len = 64});
      verify(model.graph);
      ASSERT_TRUE(published.contains(name)) << name;
      EXPECT_EQ(num_params(model.params), published.at(name)) << name;
      EXPECT_EQ(resolve_model(flavor(preset.model, preset.flavor), 0), preset);
      ++presets;
    }
  }
  EXPECT_EQ(presets, published.size());
}

TEST(Model, AFolderIsAFlavor) {
  const TempFolder folder;
  ModelSpec spec = find_model("llama").presets().front();
  spec.head_dim = 48;  // not dim / n_heads
  spec.ffn_dim = 500;
  folder.write("config.json", hf_config_text(spec, "float32"));
  ModelConfig config = flavor("llama", folder / "");
  spec.flavor = config.flavor;
  EXPECT_EQ(resolve_model(config, 0), spec);
  config.n_layers = spec.n_layers = 2;
  spec.flavor = cat("(changed from ", config.flavor, ")");
  EXPECT_EQ(resolve_model(config, 0), spec);
  config.name = "gpt2";
  expect_user_error(ExitCode::Config,
                    cat(folder / "config.json",
                        ": describes a llama, expected a gpt2; set model.name = \"llama\""),
                    [&] { resolve_model(config, 0); });
}

TEST(Model, EveryNameIsUnique) {
  for (const ModelDef* def : all_models()) {
    std::map<std::string, int> seen;
    for (const ParamInfo& param : build_model(def->presets().front(), {}).params) {
      ++seen["param " + param.name];
      for (const NamedRows& rows : param.slices) ++seen[rows.name];
    }
    for (const auto& [name, times] : seen) EXPECT_EQ(times, 1) << name;
  }
}

TEST(Model, OverriddenWidthTakesTheFeedForwardAlong) {
  ModelConfig config = flavor("gpt2", "baby");
  config.dim = 128;
  config.n_heads = 4;
  config.n_layers = 4;
  config.max_seq_len = 64;
  config.dropout = 0.0;
  const ModelSpec spec = resolve_model(config, 0);
  EXPECT_EQ(spec.flavor, "(changed from baby)");
  EXPECT_EQ(spec.ffn_dim, 512);
  EXPECT_EQ(spec.head_dim, 32);
  EXPECT_EQ(spec.n_kv_heads, 4);
  EXPECT_FALSE(spec.bias);

  config.ffn_dim = 300;
  EXPECT_EQ(resolve_model(config, 0).ffn_dim, 300);

  ModelConfig llama = flavor("llama", "debug");
  llama.dim = 64;
  llama.n_heads = 4;
  EXPECT_EQ(resolve_model(llama, 0).ffn_dim, 256);  // 192, rounded up
}

TEST(Model, GroupedHeadsKeepTheirNumber) {
  ModelConfig config = flavor("llama", "1B");
  config.n_heads = 16;
  EXPECT_EQ(resolve_model(config, 0).n_kv_heads, 8);
  EXPECT_EQ(resolve_model(config, 0).head_dim, 128);
}

TEST(Model, VocabularyOfTheData) {
  ModelConfig config = flavor("gpt2", "tiny");
  config.vocab_size = -1;
  EXPECT_EQ(resolve_model(config, 65).vocab_size, 65);
  expect_user_error(ExitCode::Config,
                    "model.vocab_size = -1 takes the vocabulary of the training data, which does "
                    "not state one; set a number",
                    [&] { resolve_model(config, 0); });
  config.vocab_size = 100;
  EXPECT_EQ(resolve_model(config, 65).vocab_size, 100);
}

TEST(Model, RopeScalingByName) {
  ModelConfig config = flavor("llama", "1B");
  EXPECT_EQ(resolve_model(config, 0).rope_scaling.factor, 32);
  config.rope_scaling = "none";
  EXPECT_EQ(resolve_model(config, 0).rope_scaling.factor, 0);
  config.rope_scaling = "llama3";
  EXPECT_EQ(resolve_model(config, 0).rope_scaling.factor, 32);
  config.flavor = "debug";
  EXPECT_EQ(resolve_model(config, 0).rope_scaling.factor, 8);
  config.rope_scaling = "yarn";
  EXPECT_TRUE(resolve_model(config, 0).rope_scaling.yarn);
  EXPECT_EQ(resolve_model(config, 0).rope_scaling.factor, 40);
  config.rope_scaling = "linear";
  expect_user_error(ExitCode::Config,
                    "model.rope_scaling = \"linear\" is unknown; choose from none, llama3, yarn",
                    [&] { resolve_model(config, 0); });
}

// Runs resolve_model on a changed config and expects this message.
template <class Change>
void expect_refused(const std::string& message, ModelConfig config, Change change) {
  change(config);
  expect_user_error(ExitCode::Config, message, [&] { resolve_model(config, 0); });
}

TEST(Model, RefusesAnUnknownFlavor) {
  expect_refused("model.flavor = \"125M\" is not a flavor of gpt2; did you mean \"124M\"?",
                 flavor("gpt2", "125M"), [](ModelConfig&) {});
}

TEST(Model, RefusesSizesThatDoNotDivide) {
  expect_refused("model.n_heads = 5 does not divide model.dim = 64; choose a divisor",
                 flavor("gpt2", "tiny"), [](ModelConfig& c) { c.n_heads = 5; });
  expect_refused("model.n_kv_heads = 3 does not divide model.n_heads = 16; choose a divisor",
                 flavor("llama", "debug"), [](ModelConfig& c) { c.n_kv_heads = 3; });
  expect_refused(
      "model.dim = 240 over model.n_heads = 16 gives heads of 15, but rotary positions "
      "need an even size; choose other sizes",
      flavor("llama", "debug"), [](ModelConfig& c) { c.dim = 240; });
}

TEST(Model, RefusesValuesOutOfRange) {
  expect_refused("model.dim = 0 is out of range; expected 1 to 1048576", flavor("gpt2", "tiny"),
                 [](ModelConfig& c) { c.dim = 0; });
  expect_refused("model.n_layers = 20000 is out of range; expected 1 to 10000",
                 flavor("gpt2", "tiny"), [](ModelConfig& c) { c.n_layers = 20000; });
  expect_refused("model.vocab_size = -2 is out of range; expected 1 to 2147483647",
                 flavor("gpt2", "tiny"), [](ModelConfig& c) { c.vocab_size = -2; });
  expect_refused("model.dropout = 1 is out of range; expected 0 or more and below 1",
                 flavor("gpt2", "tiny"), [](ModelConfig& c) { c.dropout = 1; });
  expect_refused("model.norm_eps = 0 is out of range; expected above 0 and below 1",
                 flavor("gpt2", "tiny"), [](ModelConfig& c) { c.norm_eps = 0; });
  expect_refused("model.rope_theta = 0 is out of range; expected 1 or more",
                 flavor("llama", "debug"), [](ModelConfig& c) { c.rope_theta = 0; });
}

TEST(Model, RefusesASequenceBeyondTheTable) {
  expect_user_error(
      ExitCode::Config,
      "training.seq_len = 2048 is longer than the model's table of 1024 positions; lower it or "
      "raise model.max_seq_len",
      [] { build_model(resolve_model(flavor("gpt2", "124M"), 0), {.batch = 1, .seq_len = 2048}); });
}

}  // namespace
}  // namespace weft

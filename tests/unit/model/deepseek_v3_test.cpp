#include <gtest/gtest.h>

#include <cmath>

#include "graph/text.h"
#include "graph/verify.h"
#include "model/hf_config.h"
#include "model/model.h"
#include "support/golden.h"
#include "support/user_error.h"

namespace weft {
namespace {

ModelSpec flavor(const std::string& name) {
  ModelConfig config;
  config.name = "deepseek_v3";
  config.flavor = name;
  return resolve_model(config, 0);
}

// The first layer, which is dense.
ModelSpec one_layer() {
  ModelSpec spec = flavor("debug");
  spec.n_layers = 1;
  return spec;
}

// A dense layer and one with experts.
TEST(DeepseekV3, Forward) {
  ModelSpec spec = flavor("debug");
  spec.n_layers = 2;
  const BuiltModel model = build_model(spec, {.batch = 2, .seq_len = 16});
  verify(model.graph);
  expect_golden("models/deepseek_v3_train.txt", print_graph(model.graph));
}

// Without a latent of q, its projection is a parameter of its own.
TEST(DeepseekV3, QueriesWithoutALatent) {
  ModelSpec spec = one_layer();
  spec.latent.q_rank = 0;
  const BuiltModel model = build_model(spec, {.batch = 2, .seq_len = 16});
  verify(model.graph);
  const Value* wq = model.graph.find_value("l0.attention.wq.w");
  ASSERT_NE(wq, nullptr);
  EXPECT_EQ(wq->type.shape, (Shape{8 * 48, 256}));
  EXPECT_EQ(model.graph.find_value("l0.attention.latents")->type.shape, (Shape{2, 16, 64 + 16}));
  EXPECT_EQ(model.graph.find_value("l0.attention.q_latent"), nullptr);
}

// The published numbers, in units of 10 million.
TEST(DeepseekV3, ATokenIsMultipliedWithTheWeightsOfItsExperts) {
  for (const auto& [name, active] : {std::pair{"16B", 258}, std::pair{"671B", 3663}}) {
    const BuiltModel model = build_model(flavor(name), {});
    EXPECT_EQ((num_multiplied_params(model) + 5000000) / 10000000, active) << name;
  }
}

// 187.1 M parameters per layer, as published, and a score factor from YaRN.
TEST(DeepseekV3, AttentionOfThe671B) {
  ModelSpec spec = flavor("671B");
  spec.n_layers = 1;
  const BuiltModel model = build_model(spec, {.batch = 1, .seq_len = 64});
  int64_t attention = 0;
  for (const ParamInfo& param : model.params) {
    if (param.name.starts_with("layers.0.attention.")) attention += count(param.shape);
  }
  EXPECT_EQ(attention, 187'107'328);
  const Node& mix = *model.graph.find_value("l0.attention.mix")->def;
  EXPECT_EQ(std::get<int64_t>(mix.attr("value_dim")), 128);
  EXPECT_NEAR(std::get<double>(mix.attr("scale")), 1.8738 / std::sqrt(192.0), 1e-5);
}

TEST(DeepseekV3, RefusesWhatIsNotLatentAttention) {
  const auto parse = [](const std::string& field) {
    parse_hf_config(cat(R"({"model_type": "deepseek_v3", "vocab_size": 256, "hidden_size": 64,
                            "num_hidden_layers": 1, "num_attention_heads": 4,
                            "intermediate_size": 176, "max_position_embeddings": 64,
                            "first_k_dense_replace": 1, "moe_intermediate_size": 48,
                            "n_routed_experts": 4, "num_experts_per_tok": 2, "kv_lora_rank": 32,
                            "qk_nope_head_dim": 16, "v_head_dim": 16, )",
                        field, "}"),
                    "c.json");
  };
  expect_user_error(ExitCode::InputFile,
                    "c.json: \"num_key_value_heads\" is 2, expected as many as "
                    "\"num_attention_heads\" = 4",
                    [&] { parse(R"("qk_rope_head_dim": 8, "num_key_value_heads": 2)"); });
  expect_user_error(ExitCode::InputFile,
                    "c.json: describes a model that cannot be built: keys share 7 elements, but "
                    "rotary positions need an even number; choose another qk_rope_head_dim",
                    [&] { parse(R"("qk_rope_head_dim": 7)"); });
  expect_user_error(ExitCode::InputFile, "c.json: \"qk_rope_head_dim\" is missing",
                    [&] { parse(R"("q_lora_rank": null)"); });
  expect_user_error(ExitCode::InputFile,
                    "c.json: \"scoring_func\" is \"softmax\", expected \"sigmoid\"",
                    [&] { parse(R"("qk_rope_head_dim": 8, "scoring_func": "softmax")"); });
}

}  // namespace
}  // namespace weft

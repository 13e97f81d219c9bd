#include <gtest/gtest.h>

#include "graph/text.h"
#include "graph/verify.h"
#include "model/hf_config.h"
#include "model/model.h"
#include "support/golden.h"
#include "support/user_error.h"

namespace weft {
namespace {

ModelSpec debug() {
  return find_model("llama4").presets().front();
}

// Two layers, the second without rotary positions and with experts, on sequences longer than a
// chunk.
TEST(Llama4, Forward) {
  ModelSpec spec = debug();
  spec.n_layers = 2;
  spec.attention_layers.no_rope_interval = 2;
  const BuiltModel model = build_model(spec, {.batch = 2, .seq_len = 96});
  verify(model.graph);
  expect_golden("models/llama4_train.txt", print_graph(model.graph));
}

// What a short sequence cannot show is left out.
TEST(Llama4, ShortSequencesHaveNeitherChunksNorTemperature) {
  const BuiltModel model = build_model(debug(), {.batch = 2, .seq_len = 63});
  const std::string text = print_graph(model.graph);
  EXPECT_EQ(text.find("chunk="), std::string::npos);
  EXPECT_EQ(text.find("scale_queries"), std::string::npos);
  const BuiltModel longer = build_model(debug(), {.batch = 2, .seq_len = 64});
  EXPECT_NE(print_graph(longer.graph).find("scale_queries"), std::string::npos);
}

// A small model of four layers with one extra field.
ModelSpec parse(const std::string& field) {
  return parse_hf_config(cat(R"({"model_type": "llama4_text", "vocab_size": 256, "hidden_size": 64,
                                 "num_hidden_layers": 4, "num_attention_heads": 4,
                                 "intermediate_size": 48, "intermediate_size_mlp": 176,
                                 "max_position_embeddings": 64, "num_local_experts": 4, )",
                             field, "}"),
                         "c.json");
}

TEST(Llama4, ListsOfLayers) {
  const AttentionLayers interval = parse(R"("no_rope_layers": [1, 1, 1, 0])").attention_layers;
  EXPECT_EQ(interval.no_rope_interval, 4);
  EXPECT_TRUE(interval.rope.empty());
  EXPECT_EQ(interval, parse(R"("no_rope_layers": [])").attention_layers);
  EXPECT_EQ(interval.chunk_of(2), 8192);
  EXPECT_EQ(interval.chunk_of(3), 0);

  const AttentionLayers listed =
      parse(R"("no_rope_layers": [0, 1, 1, 0, 1], "layer_types": ["full_attention",
               "full_attention", "chunked_attention", "chunked_attention", "full_attention"])")
          .attention_layers;
  EXPECT_EQ(listed.rope, (std::vector<int64_t>{0, 1, 1, 0}));
  EXPECT_EQ(listed.chunked, (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_FALSE(listed.has_rope(0));
  EXPECT_EQ(listed.chunk_of(3), 8192);
}

TEST(Llama4, LayersWithExperts) {
  const auto layers = [](const std::string& field) {
    std::vector<int64_t> found;
    const Experts experts = parse(field).experts;
    for (int64_t layer = 0; layer < 4; ++layer) {
      if (experts.in_layer(layer)) found.push_back(layer);
    }
    return found;
  };
  EXPECT_EQ(layers(R"("moe_layers": null)"), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(layers(R"("interleave_moe_layer_step": 2)"), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(layers(R"("moe_layers": [0, 3])"), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(layers(R"("moe_layers": [])"), std::vector<int64_t>{});
  EXPECT_EQ(parse(R"("moe_layers": [1, 3], "interleave_moe_layer_step": 2)").experts.step, 2);
}

// The published numbers without the input embedding, in units of 10 million.
TEST(Llama4, ATokenIsMultipliedWithTheWeightsOfItsExpert) {
  for (const ModelSpec& spec : find_model("llama4").presets()) {
    if (spec.flavor == "debug") continue;
    const int64_t active = num_multiplied_params(build_model(spec, {}));
    const int64_t table = spec.vocab_size * spec.dim;
    EXPECT_EQ((active + table + 5000000) / 10000000, spec.flavor == "scout" ? 1717 : 1718);
  }
}

TEST(Llama4, TemperatureMayBeANumber) {
  EXPECT_EQ(parse(R"("attn_temperature_tuning": 4)").attention_layers.temperature, 0.1);
  EXPECT_EQ(parse(R"("attn_temperature_tuning": 0)").attention_layers.temperature, 0);
  EXPECT_EQ(parse(R"("attn_temperature_tuning": false)").attention_layers.temperature, 0);
  EXPECT_EQ(parse(R"("attn_scale": 0.3)").attention_layers.temperature, 0.3);
}

// As the hub has it: next to a description of the part that reads images.
TEST(Llama4, TheTextModelOfALargerOne) {
  ModelSpec spec = debug();
  const std::string text = hf_config_text(spec, "float32");
  spec.flavor.clear();
  EXPECT_EQ(
      parse_hf_config(cat(R"({"model_type": "llama4", "text_config": )", text, "}"), "c.json"),
      spec);
  expect_user_error(
      ExitCode::InputFile, "c.json: \"text_config\": \"num_local_experts\" is missing", [] {
        parse_hf_config(R"({"model_type": "llama4", "text_config": {"model_type": "llama4_text",
                            "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 4,
                            "num_attention_heads": 4, "intermediate_size": 48,
                            "max_position_embeddings": 64}})",
                        "c.json");
      });
}

TEST(Llama4, RefusesListsThatDoNotFit) {
  const auto refused = [](const std::string& message, const std::string& field) {
    expect_user_error(ExitCode::InputFile, message, [&] { parse(field); });
  };
  refused("c.json: \"no_rope_layers\" has 2 entries, expected one for each of 4 layers",
          R"("no_rope_layers": [1, 0])");
  refused("c.json: \"no_rope_layers\" is [1,-1], expected a list of numbers from 0 on",
          R"("no_rope_layers": [1, -1])");
  refused(
      "c.json: \"layer_types\" has \"sliding_attention\", expected \"chunked_attention\" or "
      "\"full_attention\"",
      R"("layer_types": ["sliding_attention", "full_attention", "full_attention",
                         "full_attention"])");
  ModelSpec spec = parse(R"("no_rope_layers": [0, 1, 1, 0])");
  spec.n_layers = 3;
  expect_user_error(ExitCode::Config,
                    "model.n_layers = 3, but the model's list of layers has 4; change the list in "
                    "its config.json",
                    [&] { check_model(spec); });
}

}  // namespace
}  // namespace weft

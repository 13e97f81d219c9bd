#include "model/hf_config.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

std::string fixture(const std::string& model) {
  return std::string(WEFT_TESTS_DIR) + "/numerics/" + model + "/config.json";
}

TEST(HfConfig, ReadsWhatTransformersWrote) {
  ModelSpec gpt2 = read_hf_config(fixture("gpt2"));
  gpt2.flavor = "tiny";
  EXPECT_EQ(gpt2, find_model("gpt2").presets().front());

  const ModelSpec llama = read_hf_config(fixture("llama3"));
  EXPECT_EQ(llama.model, "llama");
  EXPECT_EQ(llama.dim, 64);
  EXPECT_EQ(llama.n_layers, 2);
  EXPECT_EQ(llama.n_heads, 4);
  EXPECT_EQ(llama.n_kv_heads, 2);
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.ffn_dim, 176);
  EXPECT_EQ(llama.rope_theta, 500000);
  EXPECT_EQ(llama.rope_scaling.factor, 0);
  EXPECT_FALSE(llama.tie_embeddings);
}

TEST(HfConfig, EveryPresetComesBack) {
  for (const ModelDef* def : all_models()) {
    for (ModelSpec preset : def->presets()) {
      const std::string text = hf_config_text(preset, "float32");
      const std::string flavor = std::exchange(preset.flavor, "");
      EXPECT_EQ(parse_hf_config(text, "config.json"), preset) << flavor;
    }
  }
}

TEST(HfConfig, WritesTheOlderSpelling) {
  ModelSpec spec = find_model("llama").presets()[1];
  EXPECT_EQ(hf_config_text(spec, "bfloat16"), R"({
  "model_type": "llama",
  "architectures": [
    "LlamaForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": null,
  "eos_token_id": null,
  "head_dim": 64,
  "hidden_act": "silu",
  "hidden_size": 2048,
  "initializer_range": 0.02,
  "intermediate_size": 8192,
  "max_position_embeddings": 131072,
  "num_attention_heads": 32,
  "num_hidden_layers": 16,
  "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05,
  "rope_theta": 500000.0,
  "rope_scaling": {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3"
  },
  "tie_word_embeddings": true,
  "mlp_bias": false,
  "torch_dtype": "bfloat16",
  "use_cache": true,
  "vocab_size": 128256
}
)");
}

TEST(HfConfig, SaysWhatBeginsAndEndsAText) {
  for (const ModelDef* def : all_models()) {
    ModelSpec spec = def->presets().front();
    spec.flavor.clear();
    const std::string unknown = hf_config_text(spec, "float32");
    EXPECT_NE(unknown.find("\"bos_token_id\": null"), std::string::npos) << unknown;
    EXPECT_NE(unknown.find("\"eos_token_id\": null"), std::string::npos) << unknown;
    spec.bos_token_ids = {0};
    spec.eos_token_ids = {17, 3};
    const std::string text = hf_config_text(spec, "float32");
    EXPECT_NE(text.find("\"bos_token_id\": 0,"), std::string::npos) << text;
    EXPECT_NE(text.find("\"eos_token_id\": [\n    17,\n    3\n  ]"), std::string::npos) << text;
    EXPECT_EQ(parse_hf_config(text, "config.json"), spec);
  }
}

// A small Llama with one extra field.
std::string llama_with(const std::string& field) {
  return cat(R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 64,
                 "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 176,
                 "max_position_embeddings": 64)",
             field.empty() ? "" : ", ", field, "}");
}

ModelSpec parse(const std::string& text) {
  return parse_hf_config(text, "c.json");
}

TEST(HfConfig, FieldsThatMayBeAbsent) {
  const ModelSpec spec = parse(llama_with(R"("head_dim": null)"));
  EXPECT_EQ(spec.n_kv_heads, 4);
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_EQ(spec.norm_eps, 1e-6);
  EXPECT_EQ(spec.rope_theta, 10000);
  EXPECT_EQ(parse(llama_with(R"("head_dim": 32)")).head_dim, 32);
}

TEST(HfConfig, TokenIdsOutsideTheVocabularyAreNone) {
  const ModelSpec spec = parse(llama_with(R"("bos_token_id": -1, "eos_token_id": [2, 256])"));
  EXPECT_TRUE(spec.bos_token_ids.empty());
  EXPECT_EQ(spec.eos_token_ids, (std::vector<int64_t>{2}));
}

// The model may be a preset that does not know the folder of its weights.
TEST(HfConfig, TokenIdsOfAnotherConfigAreTakenOver) {
  const TempFolder folder;
  ModelSpec spec{.vocab_size = 100, .bos_token_ids = {5}, .eos_token_ids = {6}};
  read_token_ids(folder.write("a.json", R"({"eos_token_id": [7, 8, 100]})"), spec);
  EXPECT_EQ(spec.bos_token_ids, (std::vector<int64_t>{5}));
  EXPECT_EQ(spec.eos_token_ids, (std::vector<int64_t>{7, 8}));
}

TEST(HfConfig, BothSpellingsOfRope) {
  const std::string scaling =
      R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 4096)";
  const ModelSpec v5 =
      parse(llama_with(cat(R"("rope_parameters": {"rope_theta": 5e5, )", scaling, "}")));
  const ModelSpec v4 =
      parse(llama_with(cat(R"("rope_theta": 500000.0, "rope_scaling": {)", scaling, "}")));
  EXPECT_EQ(v4, v5);
  EXPECT_EQ(v5.rope_theta, 500000);
  EXPECT_EQ(v5.rope_scaling.factor, 8);
  EXPECT_EQ(v5.rope_scaling.original_max_position, 4096);
  EXPECT_EQ(parse(llama_with(R"("rope_scaling": null)")).rope_scaling.factor, 0);
}

TEST(HfConfig, Yarn) {
  const auto scaling = [](const std::string& fields) {
    return parse(llama_with(cat(R"("rope_scaling": {"type": "yarn", "factor": 40, )", fields, "}")))
        .rope_scaling;
  };
  const RopeScaling deepseek = scaling(R"("beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
      "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096)");
  EXPECT_EQ(deepseek, (RopeScaling{.factor = 40,
                                   .high_freq_factor = 32,
                                   .original_max_position = 4096,
                                   .yarn = true,
                                   .mscale = 1,
                                   .mscale_all_dim = 1}));
  EXPECT_EQ(deepseek.magnitude(), 1);
  EXPECT_NEAR(deepseek.score_factor(), 1.8738, 1e-4);
  // Without mscale the factor itself counts; the original length is the longest, here 64.
  const RopeScaling plain = scaling(R"("truncate": false)");
  EXPECT_EQ(plain.original_max_position, 64);
  EXPECT_FALSE(plain.truncate);
  EXPECT_NEAR(plain.magnitude(), 1.36889, 1e-5);
  EXPECT_EQ(plain.score_factor(), 1);
  EXPECT_EQ(scaling(R"("attention_factor": 1.5)").magnitude(), 1.5);
  EXPECT_NEAR(scaling(R"("mscale": 0.5, "mscale_all_dim": 1.0)").magnitude(), 0.86526, 1e-5);
}

void expect_refused(const std::string& message, const std::string& text) {
  expect_user_error(ExitCode::InputFile, message, [&] { parse(text); });
}

TEST(HfConfig, RefusesWhatIsNotSupported) {
  expect_refused(
      R"(c.json: "model_type" is "mamba", expected "gpt2", "llama", "qwen3", "qwen3_moe", "deepseek_v3" or "llama4_text")",
      R"({"model_type": "mamba"})");
  expect_refused(R"(c.json: "hidden_act" is "gelu", expected "silu")",
                 llama_with(R"("hidden_act": "gelu")"));
  expect_refused(R"(c.json: "eos_token_id" is "</s>", expected a token id or a list of them)",
                 llama_with(R"("eos_token_id": "</s>")"));
  expect_refused(R"(c.json: "attention_bias" is true, which is not supported)",
                 llama_with(R"("attention_bias": true)"));
  expect_refused(
      R"(c.json: "rope_scaling": "type" is "linear", expected "default", "llama3" or "yarn")",
      llama_with(R"("rope_scaling": {"type": "linear", "factor": 2.0})"));
  expect_refused(R"(c.json: attn_pdrop = 0.2 differs from resid_pdrop = 0.1; )"
                 "one dropout rate is supported",
                 R"({"model_type": "gpt2", "vocab_size": 256, "n_embd": 64, "n_layer": 2,
                     "n_head": 4, "n_positions": 64, "attn_pdrop": 0.2})");
}

TEST(HfConfig, RefusesHostileValues) {
  expect_refused(R"(c.json: "n_embd" is missing)", R"({"model_type": "gpt2", "vocab_size": 256})");
  const auto gpt2 = [](const std::string& layers) {
    return cat(R"({"model_type": "gpt2", "vocab_size": 256, "n_embd": 64, "n_head": 4,
                   "n_positions": 64, "n_layer": )",
               layers, "}");
  };
  const std::string range = ", expected a whole number from 1 to 2147483647";
  expect_refused("c.json: \"n_layer\" is 0" + range, gpt2("0"));
  expect_refused("c.json: \"n_layer\" is -1" + range, gpt2("-1"));
  expect_refused("c.json: \"n_layer\" is 2.5" + range, gpt2("2.5"));
  expect_refused("c.json: \"n_layer\" is \"2\"" + range, gpt2("\"2\""));
  expect_refused("c.json: \"n_layer\" is 18446744073709551615" + range,
                 gpt2("18446744073709551615"));
  expect_refused(
      "c.json: describes a model that cannot be built: model.n_layers = 1000000000 is "
      "out of range; expected 1 to 10000",
      gpt2("1000000000"));
  expect_refused(R"(c.json: "num_attention_heads" = 5 does not divide "hidden_size" = 64)",
                 R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 64,
                     "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 176,
                     "max_position_embeddings": 64})");
  expect_refused(
      "c.json: describes a model that cannot be built: model.head_dim = 2000000000 is "
      "out of range; expected 1 to 262144",
      llama_with(R"("head_dim": 2000000000)"));
  expect_refused(R"(c.json: "rope_scaling" is 3, expected an object)",
                 llama_with(R"("rope_scaling": 3)"));
  expect_refused(R"(c.json: "tie_word_embeddings" is 1, expected true or false)",
                 llama_with(R"("tie_word_embeddings": 1)"));
  EXPECT_THROW(parse("[1, 2]"), UserError);
  EXPECT_THROW(parse(R"({"model_type": 3})"), UserError);
}

}  // namespace
}  // namespace weft

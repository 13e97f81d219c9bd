#include "train/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "checkpoint/safetensors.h"
#include "data/tokenizer_json.h"
#include "model/hf_config.h"
#include "support/safetensors_file.h"
#include "support/temp_folder.h"
#include "support/tiny_bpe.h"
#include "support/user_error.h"
#include "train/export.h"
#include "train/model_texts.h"

namespace weft {
namespace {

using Arrays = std::vector<std::vector<float>>;

std::string fixture(const std::string& model) {
  return std::string(WEFT_TESTS_DIR) + "/numerics/" + model;
}

ModelSpec tiny(const std::string& model) {
  return read_hf_config(fixture(model) + "/config.json");
}

std::vector<ParamInfo> params_of(const ModelSpec& spec) {
  return build_model(spec, {}).params;
}

Arrays load(const std::string& path, const ModelDef& def, const std::vector<ParamInfo>& params) {
  const WeightFiles files(path, def, params);
  Arrays arrays;
  for (size_t i = 0; i < params.size(); ++i) arrays.push_back(files.read(i));
  return arrays;
}

Arrays load(const std::string& path, const ModelSpec& spec) {
  return load(path, find_model(spec.model), params_of(spec));
}

// A file of raw tensors; values are 0, 1, 2, ... unless given.
struct Tensor {
  std::string name;
  std::string dtype;
  Shape shape;
  float scale = 1;
};

std::string write_file(const TempFolder& folder, const std::vector<Tensor>& tensors) {
  const std::string path = folder / "model.safetensors";
  std::vector<TensorSpec> specs;
  for (const Tensor& tensor : tensors) specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  std::string data;
  for (const Tensor& tensor : tensors) {
    for (int64_t i = 0; i < count(tensor.shape); ++i) {
      const float value = static_cast<float>(i) * tensor.scale;
      const uint16_t half = tensor.dtype == "F16" ? f16_from_f32(value) : bf16_from_f32(value);
      if (tensor.dtype == "F32" || tensor.dtype == "I32") {
        data.append(reinterpret_cast<const char*>(&value), sizeof value);
      } else {
        data.append(reinterpret_cast<const char*>(&half), sizeof half);
      }
    }
  }
  write_safetensors(path, specs, data);
  return path;
}

// Two parameters: one fused from two tensors, one with a tied head.
std::vector<ParamInfo> two_params() {
  return {{"ab", {3, 2}, {}, Init::Normal, 1, {{"transformer.a", 0, 1}, {"transformer.b", 1, 2}}},
          {"t",
           {2},
           {},
           Init::Normal,
           1,
           {{"transformer.t", 0, 2}},
           {"head"},
           {{"transformer.z", {2}}}}};
}

Arrays load_two(const std::string& path) {
  return load(path, find_model("gpt2"), two_params());
}

TEST(Weights, FusedRowsTypesAndPrefixes) {
  const TempFolder folder;
  const std::string path = write_file(folder, {{"a", "F16", {1, 2}},
                                               {"transformer.b", "BF16", {2, 2}},
                                               {"t", "F32", {2}},
                                               {"h.0.attn.bias", "I32", {1}}});
  const Arrays expected = {{0, 1, 0, 1, 2, 3}, {0, 1}};
  EXPECT_EQ(load_two(path), expected);
  EXPECT_EQ(load_two(folder.path()), expected);
}

TEST(Weights, CopiesOfATiedWeightAndZeroBiases) {
  const TempFolder folder;
  const std::string path = write_file(folder, {{"a", "F32", {1, 2}},
                                               {"b", "F32", {2, 2}},
                                               {"t", "F32", {2}},
                                               {"head", "F32", {2}},
                                               {"z", "F32", {2}, 0}});
  EXPECT_EQ(load_two(path).size(), 2u);
}

// Tensors of a file, and the error message after its path.
void expect_refused(const std::string& message, const std::vector<Tensor>& tensors) {
  const TempFolder folder;
  const std::string path = write_file(folder, tensors);
  expect_user_error(ExitCode::InputFile, path + ": " + message, [&] { load_two(path); });
}

// Any part of a parameter, across the tensors it is fused from.
TEST(Weights, PartsOfAParameter) {
  const TempFolder folder;
  const std::string path =
      write_file(folder, {{"a", "F16", {1, 2}}, {"b", "BF16", {2, 2}, 10}, {"t", "F32", {2}}});
  const WeightFiles files(path, find_model("gpt2"), two_params());
  const std::vector<float> all = {0, 1, 0, 10, 20, 30};
  for (size_t first = 0; first < all.size(); ++first) {
    for (size_t end = first + 1; end <= all.size(); ++end) {
      std::vector<float> part(end - first);
      files.read(0, static_cast<int64_t>(first), part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<int64_t>(first)));
    }
  }
}

std::vector<ParamInfo> one_param() {
  return {{"x", {2}, {}, Init::Normal, 1, {{"model.layers.0.x", 0, 2}}}};
}

// DeepSeek-V3's layers that predict several tokens have a projection of their own.
TEST(Weights, LayersForOtherUsesAreSkipped) {
  const TempFolder folder;
  const Tensor x = {"model.layers.0.x", "F32", {2}}, later = {"model.layers.1.x", "F32", {2}};
  const auto load_one = [&](const std::vector<Tensor>& tensors) {
    return load(write_file(folder, tensors), find_model("deepseek_v3"), one_param());
  };
  EXPECT_EQ(load_one({x, later, {"model.layers.1.eh_proj.weight", "F32", {2, 4}}}),
            (Arrays{{0, 1}}));
  expect_user_error(
      ExitCode::InputFile,
      cat(folder / "model.safetensors",
          ": tensor \"model.layers.1.x\" is not a weight of this deepseek_v3 model; check that its "
          "sizes and options are those of the file"),
      [&] {
        load_one({x, later});
      });
}

TEST(Weights, TheTextModelOfALargerOne) {
  const TempFolder folder;
  const Tensor image = {"vision_model.x", "F32", {1}};
  const auto load_one = [&](const std::string& name) {
    return load(write_file(folder, {{name, "F32", {2}}, image}), find_model("llama4"), one_param());
  };
  EXPECT_EQ(load_one("language_model.model.layers.0.x"), (Arrays{{0, 1}}));
  expect_user_error(ExitCode::InputFile,
                    cat(folder / "model.safetensors",
                        ": tensor \"vision_model.x\" is not a weight of this llama4 model; check "
                        "that its sizes and options are those of the file"),
                    [&] { load_one("model.layers.0.x"); });
}

TEST(Weights, RefusesWhatDoesNotFit) {
  const Tensor a = {"transformer.a", "F32", {1, 2}};
  const Tensor b = {"transformer.b", "F32", {2, 2}};
  const Tensor t = {"transformer.t", "F32", {2}};
  expect_refused("tensor \"transformer.b\" is missing", {a, t});
  expect_refused("tensor \"transformer.b\" is [4], expected [2,2]",
                 {a, {"transformer.b", "F32", {4}}, t});
  expect_refused("tensor \"transformer.t\" is I32, expected F32, BF16 or F16",
                 {a, b, {"transformer.t", "I32", {2}}});
  expect_refused(
      "tensor \"extra\" is not a weight of this gpt2 model; check that its sizes and options are "
      "those of the file",
      {a, b, t, {"extra", "F32", {1}}});
  expect_refused(
      "tensor \"head\" differs from \"transformer.t\", to which the model ties it; set "
      "model.tie_embeddings = false",
      {a, b, t, {"head", "F32", {2}, 2}});
  expect_refused(
      "tensor \"transformer.z\" is not zero, but the model has no biases; set model.bias = true",
      {a, b, t, {"transformer.z", "F32", {2}}});
}

TEST(Weights, TracesLoadAndComeBackBitForBit) {
  for (const std::string model : {"gpt2", "llama3", "deepseek_v3_batch8", "llama4_batch8"}) {
    const ModelSpec spec = tiny(model);
    const Arrays arrays = load(fixture(model), spec);
    const TempFolder folder;
    export_weights(fixture(model), folder / "out", {});

    const SafetensorsFile before = SafetensorsFile::open(fixture(model) + "/model.safetensors");
    const SafetensorsFile after = SafetensorsFile::open(folder / "out/model.safetensors");
    ASSERT_EQ(after.entries().size(), before.entries().size());
    for (const TensorEntry& entry : before.entries()) {
      const TensorEntry* written = after.find(entry.name);
      ASSERT_NE(written, nullptr) << entry.name;
      EXPECT_EQ(written->shape, entry.shape);
      EXPECT_TRUE(before.bytes(entry) == after.bytes(*written)) << entry.name;
    }
    EXPECT_EQ(load(folder / "out", tiny(model)), arrays);
    EXPECT_EQ(read_hf_config(folder / "out/config.json"), spec);
    std::vector<ParamInfo> trained = params_of(spec);
    std::erase_if(trained, [](const ParamInfo& param) { return !param.trained; });
    EXPECT_EQ(load(fixture(model) + "/grads.safetensors", find_model(spec.model), trained).size(),
              trained.size());
  }
}

TEST(Weights, ExportInHalfPrecisionAndSeveralFiles) {
  const ModelSpec spec = tiny("gpt2");
  const TempFolder folder;
  export_weights(fixture("gpt2"), folder / "out",
                 {.dtype = Precision::Bfloat16, .max_file_bytes = 20'000});
  EXPECT_FALSE(path_exists(folder / "out/model.safetensors"));
  EXPECT_TRUE(path_exists(folder / "out/model.safetensors.index.json"));
  const Arrays full = load(fixture("gpt2"), spec), half = load(folder / "out", spec);
  ASSERT_EQ(half.size(), full.size());
  for (size_t i = 0; i < full.size(); ++i) {
    for (size_t j = 0; j < full[i].size(); ++j) {
      ASSERT_EQ(half[i][j], f32_from_bf16(bf16_from_f32(full[i][j])));
    }
  }
}

TEST(Weights, AnExportReplacesNothing) {
  const TempFolder folder;
  folder.write("out", "mine");
  expect_user_error(ExitCode::CannotWrite,
                    folder / "out" + ": exists already; remove it or give another folder",
                    [&] { export_weights(fixture("gpt2"), folder / "out", {}); });
  EXPECT_EQ(folder.names(), std::vector<std::string>{"out"});
}

// A config.json takes precedence over the tokenizer.
TEST(Weights, SayWhatBeginsAndEndsAText) {
  ModelSpec spec = tiny("gpt2");
  const BpeParts parts = tiny_bpe_parts();
  const int64_t end = BpeTokenizer(parts).end_token().value();
  const Tokenizer tokenizer = Tokenizer::bpe(bpe_from_json(tokenizer_json_text(parts), "tiny"));
  std::map<std::string, nlohmann::json> texts;
  const auto save = [&] {
    for (const TextFile& file : model_texts(spec, tokenizer, Precision::Float32)) {
      texts[file.name] = nlohmann::json::parse(file.text);
    }
  };
  save();
  EXPECT_EQ(texts.at("config.json").at("bos_token_id"), end);
  EXPECT_EQ(texts.at("config.json").at("eos_token_id"), end);
  const nlohmann::json& described = texts.at("tokenizer_config.json");
  EXPECT_EQ(described.at("eos_token"), "<|endoftext|>");
  EXPECT_EQ(described.at("tokenizer_class"), "PreTrainedTokenizerFast");
  EXPECT_EQ(described.at("model_max_length"), spec.max_seq_len);
  spec.eos_token_ids = {4, 5};
  save();
  EXPECT_EQ(texts.at("config.json").at("bos_token_id"), end);
  EXPECT_EQ(texts.at("config.json").at("eos_token_id"), (std::vector<int64_t>{4, 5}));
}

}  // namespace
}  // namespace weft

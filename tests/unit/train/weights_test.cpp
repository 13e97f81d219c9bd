#include "train/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "data/tokenizer_json.h"
#include "model/hf_config.h"
#include "support/temp_folder.h"
#include "support/tiny_bpe.h"
#include "support/user_error.h"
#include "train/init.h"

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

Arrays load(const std::string& path, const ModelSpec& spec) {
  Arrays arrays;
  load_weights(path, find_model(spec.model), params_of(spec),
               [&](size_t index, std::span<const float> values) {
                 EXPECT_EQ(index, arrays.size());
                 arrays.emplace_back(values.begin(), values.end());
               });
  return arrays;
}

void save(const std::string& folder, const ModelSpec& spec, const Arrays& arrays,
          const SaveOptions& options = {}) {
  save_weights(
      folder, spec, params_of(spec),
      [&](size_t index, std::span<float> values) {
        std::copy(arrays.at(index).begin(), arrays.at(index).end(), values.begin());
      },
      options);
}

Arrays initial(const ModelSpec& spec) {
  Arrays arrays;
  for (const ParamInfo& param : params_of(spec)) {
    arrays.emplace_back(static_cast<size_t>(count(param.shape)));
    init_param(param, 1, 0, arrays.back());
  }
  return arrays;
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
  SafetensorsWriter writer(path, specs);
  for (const Tensor& tensor : tensors) {
    for (int64_t i = 0; i < count(tensor.shape); ++i) {
      const float value = static_cast<float>(i) * tensor.scale;
      const uint16_t half = tensor.dtype == "F16" ? f16_from_f32(value) : bf16_from_f32(value);
      if (tensor.dtype == "F32" || tensor.dtype == "I32") {
        writer.append(std::as_bytes(std::span(&value, 1)));
      } else {
        writer.append(std::as_bytes(std::span(&half, 1)));
      }
    }
  }
  writer.commit();
  return path;
}

// Two parameters: one fused from two tensors, one with a tied head.
std::vector<ParamInfo> two_params() {
  return {
      {"ab", {3, 2}, Init::Normal, 1, {{"transformer.a", 0, 1}, {"transformer.b", 1, 2}}},
      {"t", {2}, Init::Normal, 1, {{"transformer.t", 0, 2}}, {"head"}, {{"transformer.z", {2}}}}};
}

Arrays load_two(const std::string& path) {
  Arrays arrays;
  load_weights(path, find_model("gpt2"), two_params(), [&](size_t, std::span<const float> values) {
    arrays.emplace_back(values.begin(), values.end());
  });
  return arrays;
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
  bool handed_on = false;
  expect_user_error(ExitCode::InputFile, path + ": " + message, [&] {
    load_weights(path, find_model("gpt2"), two_params(),
                 [&](size_t, std::span<const float>) { handed_on = true; });
  });
  EXPECT_FALSE(handed_on);
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
  for (const std::string model : {"gpt2", "llama3"}) {
    const ModelSpec spec = tiny(model);
    const Arrays arrays = load(fixture(model), spec);
    const TempFolder folder;
    save(folder / "out", spec, arrays);

    const SafetensorsFile before = SafetensorsFile::open(fixture(model) + "/model.safetensors");
    const SafetensorsFile after = SafetensorsFile::open(folder / "out/model.safetensors");
    ASSERT_EQ(after.entries().size(), before.entries().size());
    for (const TensorEntry& entry : before.entries()) {
      const TensorEntry* written = after.find(entry.name);
      ASSERT_NE(written, nullptr) << entry.name;
      EXPECT_EQ(written->shape, entry.shape);
      const auto a = before.bytes(entry);
      const auto b = after.bytes(*written);
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << entry.name;
    }
    EXPECT_EQ(load(folder / "out", tiny(model)), arrays);
    EXPECT_EQ(read_hf_config(folder / "out/config.json"), spec);
    EXPECT_EQ(load(fixture(model) + "/grads.safetensors", spec).size(), arrays.size());
  }
}

TEST(Weights, WithoutBiasesAndInHalfPrecision) {
  ModelSpec spec = tiny("gpt2");
  spec.bias = false;
  spec.dropout = 0.2;
  const Arrays arrays = initial(spec);
  const TempFolder folder;
  save(folder.path(), spec, arrays,
       {.dtype = Precision::Bfloat16, .tokenizer = Tokenizer::bytes()});
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"config.json", "model.safetensors",
                                                      "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(Tokenizer::open(folder.path()).identity(), Tokenizer::bytes().identity());
  EXPECT_EQ(read_hf_config(folder / "config.json"), spec);

  const SafetensorsFile file = SafetensorsFile::open(folder / "model.safetensors");
  EXPECT_NE(file.find("transformer.h.1.attn.c_attn.bias"), nullptr);
  const Arrays loaded = load(folder.path(), spec);
  ASSERT_EQ(loaded.size(), arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    for (size_t j = 0; j < arrays[i].size(); ++j) {
      ASSERT_EQ(loaded[i][j], f32_from_bf16(bf16_from_f32(arrays[i][j])));
    }
  }
  // Transformers always has biases in GPT-2: there the zeros are the biases.
  spec.bias = true;
  EXPECT_EQ(load(folder.path(), spec).size(), params_of(spec).size());
}

// A config.json takes precedence over the tokenizer.
TEST(Weights, SayWhatBeginsAndEndsAText) {
  ModelSpec spec = tiny("gpt2");
  const Arrays arrays = initial(spec);
  const TempFolder folder;
  const BpeParts parts = tiny_bpe_parts();
  const int64_t end = BpeTokenizer(parts).end_token().value();
  const SaveOptions options{.tokenizer =
                                Tokenizer::bpe(bpe_from_json(tokenizer_json_text(parts), "tiny"))};
  save(folder.path(), spec, arrays, options);
  const auto saved = [&] { return nlohmann::json::parse(folder.read("config.json")); };
  EXPECT_EQ(saved().at("bos_token_id"), end);
  EXPECT_EQ(saved().at("eos_token_id"), end);
  const auto tokenizer = nlohmann::json::parse(folder.read("tokenizer_config.json"));
  EXPECT_EQ(tokenizer.at("eos_token"), "<|endoftext|>");
  EXPECT_EQ(tokenizer.at("tokenizer_class"), "PreTrainedTokenizerFast");
  EXPECT_EQ(tokenizer.at("model_max_length"), spec.max_seq_len);
  spec.eos_token_ids = {4, 5};
  save(folder.path(), spec, arrays, options);
  EXPECT_EQ(saved().at("bos_token_id"), end);
  EXPECT_EQ(saved().at("eos_token_id"), (std::vector<int64_t>{4, 5}));
}

TEST(Weights, AFailureLeavesNothingBehind) {
  const ModelSpec spec = tiny("gpt2");
  const TempFolder folder;
  EXPECT_THROW(save_weights(folder.path(), spec, params_of(spec),
                            [](size_t index, std::span<float>) {
                              if (index == 3) throw DeviceError("gone");
                            }),
               DeviceError);
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace weft

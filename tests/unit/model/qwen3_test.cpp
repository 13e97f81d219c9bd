#include <gtest/gtest.h>

#include "graph/text.h"
#include "graph/verify.h"
#include "model/hf_config.h"
#include "model/model.h"
#include "support/golden.h"

namespace weft {
namespace {

ModelSpec flavor(const std::string& name) {
  for (const ModelSpec& spec : find_model("qwen3").presets()) {
    if (spec.flavor == name) return spec;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(Qwen3, Forward) {
  ModelSpec spec = flavor("debug");
  spec.n_layers = 1;
  const BuiltModel model = build_model(spec, {.batch = 2, .seq_len = 16});
  verify(model.graph);
  expect_golden("models/qwen3_train.txt", print_graph(model.graph));
}

// The published numbers of parameters, in billions.
TEST(Qwen3, SizesAreThePublishedOnes) {
  const std::pair<const char*, double> sizes[] = {{"0.6B", 0.596}, {"1.7B", 1.721}, {"4B", 4.022},
                                                  {"8B", 8.191},   {"14B", 14.768}, {"32B", 32.762}};
  for (const auto& [name, billions] : sizes) {
    const BuiltModel model = build_model(flavor(name), {.batch = 1, .seq_len = 8});
    EXPECT_NEAR(static_cast<double>(num_params(model.params)) / 1e9, billions, 0.0006) << name;
  }
}

TEST(Qwen3, ConfigOfHuggingFaceRoundTrips) {
  const ModelSpec spec = flavor("4B");
  HfWriter writer;
  writer.set("model_type", "qwen3");
  find_model("qwen3").to_hf(spec, writer);
  ModelSpec read = parse_hf_config(writer.text(), "config.json");
  read.flavor = spec.flavor;
  EXPECT_EQ(read, spec);
}

// A head is as large as the preset says, whatever the width.
TEST(Qwen3, HeadsKeepTheirSizeWhenTheWidthChanges) {
  ModelConfig config;
  config.name = "qwen3";
  config.flavor = "0.6B";
  config.dim = 512;
  EXPECT_EQ(resolve_model(config, 0).head_dim, 128);
}

}  // namespace
}  // namespace weft

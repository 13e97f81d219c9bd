#include <gtest/gtest.h>

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
  config.name = "qwen3_moe";
  config.flavor = name;
  return resolve_model(config, 0);
}

TEST(Qwen3Moe, Forward) {
  ModelSpec spec = flavor("debug");
  spec.n_layers = 1;
  const BuiltModel model = build_model(spec, {.batch = 2, .seq_len = 16});
  verify(model.graph);
  expect_golden("models/qwen3_moe_train.txt", print_graph(model.graph));
}

// Coefficients of the losses of routers add nodes to the graph of training only.
TEST(Qwen3Moe, LossesOfRouters) {
  ModelSpec spec = flavor("debug");
  spec.n_layers = 2;
  const auto text = [&](BuildMode mode, const BuildOptions::RouterLosses& losses) {
    BuildOptions options{.batch = 2, .seq_len = 16, .mode = mode, .router_losses = losses};
    const BuiltModel model = build_model(spec, options);
    verify(model.graph);
    return print_graph(model.graph);
  };
  for (const BuildMode mode : {BuildMode::Eval, BuildMode::Decode}) {
    EXPECT_EQ(text(mode, {.aux = 0.01, .z = 0.001}), text(mode, {}));
  }
  expect_golden("models/qwen3_moe_router_losses.txt",
                text(BuildMode::Train, {.aux = 0.01, .z = 0.001}));
}

// The published numbers, in units of 10 million.
TEST(Qwen3Moe, ATokenIsMultipliedWithTheWeightsOfItsExperts) {
  for (const auto& [name, active] : {std::pair{"30B-A3B", 304}, std::pair{"235B-A22B", 2157}}) {
    const BuiltModel model = build_model(flavor(name), {});
    EXPECT_EQ((num_multiplied_params(model) + 5000000) / 10000000, active) << name;
  }
}

TEST(Qwen3Moe, LayersWithoutExpertsAreDense) {
  const Experts experts{.count = 4, .step = 2, .dense_layers = {3}};
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < 8; ++layer) {
    if (experts.in_layer(layer)) layers.push_back(layer);
  }
  EXPECT_EQ(layers, (std::vector<int64_t>{1, 5, 7}));
}

TEST(Qwen3Moe, ItsConfigIsReadBack) {
  ModelSpec spec = flavor("30B-A3B");
  spec.experts.step = 3;
  spec.experts.dense_layers = {2, 5};
  ModelSpec back = parse_hf_config(hf_config_text(spec, "float32"), "config.json");
  back.flavor = spec.flavor;
  EXPECT_EQ(back, spec);
}

TEST(Qwen3Moe, RefusesMoreChoicesThanExperts) {
  ModelConfig config;
  config.name = "qwen3_moe";
  config.flavor = "debug";
  config.experts_per_token = 9;
  EXPECT_EQ(user_error_of([&] { resolve_model(config, 0); }),
            "model.experts_per_token = 9 is out of range; expected 1 to 8");
}

}  // namespace
}  // namespace weft

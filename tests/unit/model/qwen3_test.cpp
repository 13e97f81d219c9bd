#include <gtest/gtest.h>

#include "graph/text.h"
#include "graph/verify.h"
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

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "graph/text.h"
#include "graph/verify.h"
#include "model/model.h"
#include "support/golden.h"
#include "support/user_error.h"

namespace weft {
namespace {

ModelSpec one_layer() {
  ModelSpec spec = find_model("gpt2").presets().front();
  spec.n_layers = 1;
  return spec;
}

const ParamInfo& param(const BuiltModel& model, std::string_view name) {
  for (const ParamInfo& info : model.params) {
    if (info.name == name) return info;
  }
  throw InternalError(cat("no parameter ", name));
}

TEST(Gpt2, ForwardWithDropout) {
  ModelSpec spec = one_layer();
  spec.dropout = 0.1;
  const BuiltModel model = build_model(spec, {.batch = 2, .seq_len = 16});
  verify(model.graph);
  expect_golden("models/gpt2_train.txt", print_graph(model.graph));
}

TEST(Gpt2, DecodeWithoutBiases) {
  ModelSpec spec = one_layer();
  spec.bias = false;
  spec.dropout = 0.1;  // off when decoding
  const BuiltModel model = build_model(spec, {.batch = 1, .seq_len = 8, .mode = BuildMode::Decode});
  verify(model.graph);
  expect_golden("models/gpt2_decode.txt", print_graph(model.graph));
}

// Positions come from an input, and attention stays within documents.
TEST(Gpt2, ForwardOfPackedDocuments) {
  ModelSpec spec = one_layer();
  spec.dropout = 0.1;
  const BuiltModel model = build_model(spec, {.batch = 2, .seq_len = 16, .documents = true});
  verify(model.graph);
  expect_golden("models/gpt2_documents.txt", print_graph(model.graph));
}

TEST(Gpt2, TextRoundTrip) {
  const std::string text = print_graph(build_model(one_layer(), {.batch = 2, .seq_len = 16}).graph);
  EXPECT_EQ(print_graph(parse_graph(text)), text);
}

TEST(Gpt2, DropoutStreamsAreDistinct) {
  ModelSpec spec = find_model("gpt2").presets().front();
  spec.dropout = 0.1;
  const BuiltModel model = build_model(spec, {.batch = 1, .seq_len = 8});
  std::set<int64_t> streams;
  size_t uses = 0;
  for (const Node* node : model.graph.nodes()) {
    if (node->op->name() != "dropout" && node->op->name() != "attention") continue;
    streams.insert(std::get<int64_t>(node->attr("stream")));
    ++uses;
  }
  EXPECT_EQ(uses, 7u);  // embeddings, and three in each of two layers
  EXPECT_EQ(streams.size(), uses);
  EXPECT_GE(*streams.begin(), 0);
}

TEST(Gpt2, ParametersAndTheirNames) {
  const BuiltModel model = build_model(one_layer(), {.batch = 1, .seq_len = 8});
  EXPECT_EQ(model.params.size(), 16u);
  const ParamInfo& qkv = param(model, "layers.0.attention.wqkv.weight");
  EXPECT_EQ(qkv.shape, (Shape{64, 192}));
  EXPECT_EQ(qkv.slices.front().name, "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(qkv.std, 0.02);
  EXPECT_TRUE(qkv.zeros.empty());
  const ParamInfo& out = param(model, "layers.0.attention.wo.weight");
  EXPECT_DOUBLE_EQ(out.std, 0.02 / std::sqrt(2.0));
  EXPECT_EQ(param(model, "layers.0.feed_forward.w1.bias").init, Init::Zeros);
  EXPECT_EQ(param(model, "norm.weight").init, Init::Ones);
  EXPECT_EQ(param(model, "tok_embeddings.weight").aliases,
            std::vector<std::string>{"lm_head.weight"});
}

TEST(Gpt2, WithoutBiasesFilesHoldZeros) {
  ModelSpec spec = one_layer();
  spec.bias = false;
  const BuiltModel model = build_model(spec, {.batch = 1, .seq_len = 8});
  EXPECT_EQ(model.params.size(), 9u);
  const ParamInfo& up = param(model, "layers.0.feed_forward.w1.weight");
  ASSERT_EQ(up.zeros.size(), 1u);
  EXPECT_EQ(up.zeros[0].name, "transformer.h.0.mlp.c_fc.bias");
  EXPECT_EQ(up.zeros[0].shape, Shape{256});
}

TEST(Gpt2, UntiedHeadIsItsOwnParameter) {
  ModelSpec spec = one_layer();
  spec.tie_embeddings = false;
  const BuiltModel model = build_model(spec, {.batch = 1, .seq_len = 8});
  EXPECT_EQ(param(model, "output.weight").slices.front().name, "lm_head.weight");
  EXPECT_TRUE(param(model, "tok_embeddings.weight").aliases.empty());
}

TEST(Gpt2, HasAsManyKvHeads) {
  ModelSpec spec = one_layer();
  spec.n_kv_heads = 2;
  EXPECT_THROW(check_model(spec), InternalError);
}

}  // namespace
}  // namespace weft

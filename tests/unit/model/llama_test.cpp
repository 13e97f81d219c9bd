#include <gtest/gtest.h>

#include "graph/text.h"
#include "graph/verify.h"
#include "model/model.h"
#include "support/golden.h"
#include "support/user_error.h"

namespace weft {
namespace {

// One layer of the debug model with grouped heads and scaled rotation.
ModelSpec one_layer() {
  ModelSpec spec = find_model("llama").presets().front();
  spec.n_layers = 1;
  spec.n_kv_heads = 4;
  spec.rope_scaling.factor = 8;
  return spec;
}

TEST(Llama, Forward) {
  const BuiltModel model = build_model(one_layer(), {.batch = 2, .seq_len = 16});
  verify(model.graph);
  expect_golden("models/llama_train.txt", print_graph(model.graph));
}

TEST(Llama, ForwardOfPackedDocuments) {
  const BuiltModel model = build_model(one_layer(), {.batch = 2, .seq_len = 16, .documents = true});
  verify(model.graph);
  expect_golden("models/llama_documents.txt", print_graph(model.graph));
}

TEST(Llama, TextRoundTrip) {
  const std::string text = print_graph(build_model(one_layer(), {.batch = 2, .seq_len = 16}).graph);
  EXPECT_EQ(print_graph(parse_graph(text)), text);
}

TEST(Llama, TiedHeadUsesTheEmbedding) {
  ModelSpec spec = one_layer();
  spec.tie_embeddings = true;
  const BuiltModel tied = build_model(spec, {.batch = 2, .seq_len = 16});
  const BuiltModel untied = build_model(one_layer(), {.batch = 2, .seq_len = 16});
  EXPECT_EQ(num_params(untied.params) - num_params(tied.params), spec.vocab_size * spec.dim);
  const Node* head = tied.graph.find_value("output.logits")->def;
  EXPECT_EQ(head->operand("b"), tied.graph.find_value("tok_embeddings.w"));
}

TEST(Llama, SlicesCoverTheRowsOfEveryParameter) {
  const BuiltModel model = build_model(one_layer(), {.batch = 1, .seq_len = 8});
  for (const ParamInfo& param : model.params) {
    int64_t next = 0;
    for (const NamedRows& rows : param.slices) {
      EXPECT_EQ(rows.first, next) << rows.name;
      next += rows.count;
    }
    EXPECT_EQ(next, param.shape.at(0)) << param.name;
  }
  const ParamInfo& qkv = model.params.at(2);
  EXPECT_EQ(qkv.name, "layers.0.attention.wqkv.weight");
  ASSERT_EQ(qkv.slices.size(), 3u);
  EXPECT_EQ(qkv.slices[1].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(qkv.slices[1].first, 256);
  EXPECT_EQ(qkv.slices[1].count, 64);
}

TEST(Llama, RefusesOddHeads) {
  ModelSpec spec = one_layer();
  spec.head_dim = 15;
  expect_user_error(ExitCode::Config,
                    "model.dim = 256 over model.n_heads = 16 gives heads of 15, but rotary "
                    "positions need an even size; choose other sizes",
                    [&] { check_model(spec); });
}

}  // namespace
}  // namespace weft

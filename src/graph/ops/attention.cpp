// Attention of packed q, k and v, across a sample and within documents.
#include "graph/ops/attention_rules.h"
#include "graph/ops/ops.h"

namespace weft {
namespace {

// Checks the packed operand and the attributes.
AttentionTypes attention_types(const Call& call) {
  const AttentionHeads heads = require_packed_heads(call, "qkv");
  require_options(call);
  const TensorType& qkv = call.type("qkv");
  return {{qkv.dtype, {qkv.shape[0], qkv.shape[1], heads.y_width()}, {}},
          statistics(qkv, {qkv.shape[0], heads.q, qkv.shape[1]})};
}

std::vector<TensorType> infer_attention_grad(const Call& call) {
  const AttentionTypes types = attention_types(call);
  require_type(call, "dy", types.y.dtype, types.y.shape);
  require_type(call, "y", types.y.dtype, types.y.shape);
  require_type(call, "lse", types.lse.dtype, types.lse.shape);
  return {call.type("qkv")};
}

std::vector<Value*> vjp_attention(Vjp& v, const OpDef& grad) {
  std::vector<Value*> operands = {only_grad(v), v.operand("qkv"), v.result("y"), v.result("lse")};
  const std::vector<Value*>& own = v.node().operands;
  operands.insert(operands.end(), own.begin() + 1, own.end());
  Node* node = v.add(grad, operands,
                     {{"heads", v.attr("heads")},
                      {"kv_heads", v.attr("kv_heads")},
                      {"value_dim", v.attr("value_dim")},
                      {"scale", v.attr("scale")},
                      {"chunk", v.attr("chunk")},
                      {"dropout", v.attr("dropout")},
                      {"stream", v.attr("stream")}},
                     "qkv");
  std::vector<Value*> grads(own.size(), nullptr);
  grads[0] = node->result();
  return grads;
}

}  // namespace

constinit const OpDef kAttention{
    .signature =
        "attention(qkv, rng?; heads: int, kv_heads: int, value_dim = 0, scale = 0.0, chunk = 0, "
        "dropout = 0.0, stream = 0) -> y, lse",
    .doc =
        "Causal attention over packed qkv [batch,time,(heads+2 kv_heads)*D] to y "
        "[batch,time,heads*D]; query head h reads key head h / (heads/kv_heads). Heads of v and y "
        "have `value_dim` elements; 0: D. Scores are multiplied by `scale`; 0: 1/sqrt(D). A query "
        "sees the keys up to its own position; with `chunk`, only those of the chunk of that many "
        "positions that it is in. `dropout` "
        "acts on the probabilities [batch,heads,time,time], whose random numbers follow from rng "
        "as those of `dropout` do. lse [batch,heads,time] is kept for the gradient.",
    .traits = {.matmul = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const AttentionTypes types = attention_types(call);
      return {types.y, types.lse};
    },
    .vjp = [](Vjp& v) { return vjp_attention(v, kAttentionGrad); },
    .cost = [](const Call& call) { return cost_attention(call, kForwardMatmuls); },
    .sharding_of = [](const Call& call) { return by_head(call, "bTp, R -> bTh, bhT"); },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "qkv: f32[2,5,24]; heads=2, kv_heads=2 | qkv: f32[1,7,24]; heads=4, kv_heads=2 | "
        "qkv: f32[2,6,12], rng: i32[4]; heads=2, kv_heads=1, dropout=0.25, stream=11 | "
        "qkv: f32[1,33,15]; heads=3, kv_heads=1 | qkv: bf16[1,9,24]; heads=1, kv_heads=1 | "
        "qkv: f32[2,131,128], rng: i32[4]; heads=4, kv_heads=2, dropout=0.1, stream=5 | "
        "qkv: f32[2,6,12], rng: i32[6]; heads=2, kv_heads=1, dropout=0.25, stream=11 | "
        "qkv: f32[2,36,32], rng: i32[6]; heads=2, kv_heads=1, dropout=0.1, stream=5 | "
        "qkv: f32[2,9,26]; heads=2, kv_heads=2, value_dim=3, scale=0.4, chunk=4 | "
        "qkv: bf16[1,9,28]; heads=4, kv_heads=2, value_dim=2, chunk=3 | "
        "qkv: f32[2,131,144]; heads=4, kv_heads=2, value_dim=12, scale=0.3, chunk=50 | "
        "qkv: f32[1,70,128]; heads=4, kv_heads=2, chunk=16",
};

constinit const OpDef kAttentionGrad{
    .signature =
        "attention_grad(dy, qkv, y, lse, rng?; heads: int, kv_heads: int, value_dim = 0, "
        "scale = 0.0, chunk = 0, dropout = 0.0, stream = 0) -> dqkv",
    .doc = "Gradient of attention; recomputes the probabilities from lse.",
    .traits = {.differentiable = false, .matmul = true},
    .infer = infer_attention_grad,
    .cost = [](const Call& call) { return cost_attention(call, kBackwardMatmuls); },
    .sharding_of = [](const Call& call) { return by_head(call, "bTh, bTp, bTh, bhT, R -> bTp"); },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "dy: f32[2,5,8], qkv: f32[2,5,24], y: f32[2,5,8], lse: f32[2,2,5]; heads=2, "
        "kv_heads=2 | dy: f32[1,7,12], qkv: f32[1,7,24], y: f32[1,7,12], lse: f32[1,4,7]; "
        "heads=4, kv_heads=2 | dy: f32[2,6,6], qkv: f32[2,6,12], y: f32[2,6,6], "
        "lse: f32[2,2,6], rng: i32[4]; heads=2, kv_heads=1, dropout=0.25, stream=11 | "
        "dy: bf16[1,9,8], qkv: bf16[1,9,24], y: bf16[1,9,8], lse: f32[1,1,9]; heads=1, "
        "kv_heads=1 | "
        "dy: f32[2,131,64], qkv: f32[2,131,128], y: f32[2,131,64], lse: f32[2,4,131], rng: i32[4]; "
        "heads=4, kv_heads=2, dropout=0.1, stream=5 | "
        "dy: f32[2,6,6], qkv: f32[2,6,12], y: f32[2,6,6], lse: f32[2,2,6], rng: i32[6]; heads=2, "
        "kv_heads=1, dropout=0.25, stream=11 | "
        "dy: f32[2,36,16], qkv: f32[2,36,32], y: f32[2,36,16], lse: f32[2,2,36], rng: i32[6]; "
        "heads=2, kv_heads=1, dropout=0.1, stream=5 | "
        "dy: f32[2,9,6], qkv: f32[2,9,26], y: f32[2,9,6], lse: f32[2,2,9]; heads=2, kv_heads=2, "
        "value_dim=3, scale=0.4, chunk=4 | dy: bf16[1,9,8], qkv: bf16[1,9,28], y: bf16[1,9,8], "
        "lse: f32[1,4,9]; heads=4, kv_heads=2, value_dim=2, chunk=3 | "
        "dy: f32[2,131,48], qkv: f32[2,131,144], y: f32[2,131,48], lse: f32[2,4,131]; heads=4, "
        "kv_heads=2, value_dim=12, scale=0.3, chunk=50",
};

constinit const OpDef kDocumentAttention{
    .signature =
        "document_attention(qkv, positions, rng?; heads: int, kv_heads: int, value_dim = 0, "
        "scale = 0.0, chunk = 0, dropout = 0.0, stream = 0) -> y, lse",
    .doc =
        "Attention between tokens of the same document: the keys of row t are those from row "
        "t - positions[b,t] to t. Otherwise as attention.",
    .traits = {.matmul = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const AttentionTypes types = attention_types(call);
      require_positions(call, call.type("qkv"));
      return {types.y, types.lse};
    },
    .vjp = [](Vjp& v) { return vjp_attention(v, kDocumentAttentionGrad); },
    .cost = [](const Call& call) { return cost_attention(call, kForwardMatmuls); },
    .sharding_of = [](const Call& call) { return by_head(call, "bTp, bT, R -> bTh, bhT"); },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "qkv: f32[2,7,24], positions: i32[2,7]; heads=4, kv_heads=2 | "
        "qkv: f32[2,6,12], positions: i32[2,6], rng: i32[4]; heads=2, kv_heads=1, dropout=0.25, "
        "stream=11 | qkv: bf16[1,9,24], positions: i32[1,9]; heads=1, kv_heads=1 | "
        "qkv: f32[3,331,32], positions: i32[3,331]; heads=2, kv_heads=1 | "
        "qkv: f32[2,131,128], positions: i32[2,131], rng: i32[4]; heads=4, kv_heads=2, "
        "dropout=0.1, stream=5 | "
        "qkv: f32[2,6,12], positions: i32[2,6], rng: i32[6]; heads=2, kv_heads=1, dropout=0.25, "
        "stream=11 | "
        "qkv: f32[2,37,26], positions: i32[2,37]; heads=2, kv_heads=2, value_dim=3, scale=0.4, "
        "chunk=4 | qkv: f32[3,131,144], positions: i32[3,131]; heads=4, kv_heads=2, value_dim=12, "
        "chunk=50",
};

constinit const OpDef kDocumentAttentionGrad{
    .signature =
        "document_attention_grad(dy, qkv, y, lse, positions, rng?; heads: int, kv_heads: int, "
        "value_dim = 0, scale = 0.0, chunk = 0, dropout = 0.0, stream = 0) -> dqkv",
    .doc = "Gradient of document_attention.",
    .traits = {.differentiable = false, .matmul = true},
    .infer =
        [](const Call& call) {
          std::vector<TensorType> types = infer_attention_grad(call);
          require_positions(call, call.type("qkv"));
          return types;
        },
    .cost = [](const Call& call) { return cost_attention(call, kBackwardMatmuls); },
    .sharding_of =
        [](const Call& call) { return by_head(call, "bTh, bTp, bTh, bhT, bT, R -> bTp"); },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "dy: f32[2,7,12], qkv: f32[2,7,24], y: f32[2,7,12], lse: f32[2,4,7], positions: i32[2,7]; "
        "heads=4, kv_heads=2 | dy: f32[2,6,6], qkv: f32[2,6,12], y: f32[2,6,6], "
        "lse: f32[2,2,6], positions: i32[2,6], rng: i32[4]; heads=2, kv_heads=1, dropout=0.25, "
        "stream=11 | dy: bf16[1,9,8], qkv: bf16[1,9,24], y: bf16[1,9,8], lse: f32[1,1,9], "
        "positions: i32[1,9]; heads=1, kv_heads=1 | "
        "dy: f32[3,331,16], qkv: f32[3,331,32], y: f32[3,331,16], lse: f32[3,2,331], "
        "positions: i32[3,331]; heads=2, kv_heads=1 | "
        "dy: f32[2,131,64], qkv: f32[2,131,128], y: f32[2,131,64], lse: f32[2,4,131], "
        "positions: i32[2,131], rng: i32[4]; heads=4, kv_heads=2, dropout=0.1, stream=5 | "
        "dy: f32[2,6,6], qkv: f32[2,6,12], y: f32[2,6,6], lse: f32[2,2,6], positions: i32[2,6], "
        "rng: i32[6]; heads=2, kv_heads=1, dropout=0.25, stream=11 | "
        "dy: f32[2,37,6], qkv: f32[2,37,26], y: f32[2,37,6], lse: f32[2,2,37], "
        "positions: i32[2,37]; heads=2, kv_heads=2, value_dim=3, scale=0.4, chunk=4 | "
        "dy: f32[3,131,48], qkv: f32[3,131,144], y: f32[3,131,48], lse: f32[3,4,131], "
        "positions: i32[3,131]; heads=4, kv_heads=2, value_dim=12, chunk=50",
};

}  // namespace weft

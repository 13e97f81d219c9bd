// The layers of a transformer: norms, gates, rotary positions, attention.
#include "graph/dims.h"
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

TensorType statistics(const TensorType& x, Shape shape) {
  return {stat_dtype(x), std::move(shape), {}};
}

// x [...,n] with a weight [n], and for layer_norm a bias.
void require_norm_operands(const Call& call) {
  require_floating(call, "x", 1);
  const TensorType& x = call.type("x");
  for (size_t i = 1; i < call.operands.size(); ++i) {
    require_type(call, i, x.dtype, {row_length(x)});
  }
}

// dy, x, w, then the statistics of every row.
std::vector<TensorType> infer_norm_grad(const Call& call) {
  require_floating(call, "dy", 1);
  const TensorType& dy = call.type("dy");
  require_type(call, "x", dy.dtype, dy.shape);
  require_type(call, "w", dy.dtype, {row_length(dy)});
  for (size_t i = call.op->parsed().operand_index("w") + 1; i < call.operands.size(); ++i) {
    require_type(call, i, stat_dtype(dy), leading_dims(dy));
  }
  return {dy, {out_dtype(call, dy.dtype), {row_length(dy)}, {}}};
}

std::vector<Value*> vjp_layer_norm(Vjp& v) {
  Value* dy = only_grad(v);
  const DType dtype = dy->type.dtype;
  Node* node = v.add(kLayerNormGrad,
                     {dy, v.operand("x"), v.operand("w"), v.result("mean"), v.result("rstd")},
                     {{"out", grad_out(v, "w", dtype)}}, "x");
  std::vector<Value*> grads = {node->result("dx"), node->result("dw")};
  if (v.operand("b") != nullptr) {
    grads.push_back(v.add(kSumRows, {dy}, {{"out", grad_out(v, "b", dtype)}}, "b")->result());
  }
  return grads;
}

std::vector<Value*> vjp_rms_norm(Vjp& v) {
  Value* dy = only_grad(v);
  Node* node = v.add(kRmsNormGrad, {dy, v.operand("x"), v.operand("w"), v.result("rstd")},
                     {{"out", grad_out(v, "w", dy->type.dtype)}}, "x");
  return {node->result("dx"), node->result("dw")};
}

// Positions of tokens within their documents: i32, one per row of x.
void require_positions(const Call& call, const TensorType& x) {
  require_type(call, "positions", DType::I32, leading_dims(x));
}

std::vector<TensorType> infer_rope(const Call& call) {
  const TensorType& x = call.type("x");
  const int64_t heads = call.int_attr("heads");
  const int64_t head_dim = call.int_attr("head_dim");
  call.require(is_floating(x.dtype) && x.shape.size() == 3, "x is ", x,
               ", expected floating [batch,time,width]");
  call.require(heads > 0 && head_dim > 0 && head_dim % 2 == 0, "heads is ", heads,
               " and head_dim is ", head_dim, ", expected positive numbers and an even head_dim");
  call.require(heads <= x.shape[2] / head_dim, heads, " heads of ", head_dim,
               " do not fit the width of x, ", x.shape[2]);
  call.require(call.double_attr("theta") > 0, "theta is ", format_double(call.double_attr("theta")),
               ", expected a positive number");
  if (call.has_operand("positions")) require_positions(call, x);
  return {x};
}

std::vector<Value*> vjp_rope(Vjp& v) {
  std::vector<Value*> operands = v.node().operands;
  operands[0] = only_grad(v);
  Node* node = v.add(kRope, operands,
                     {{"heads", v.attr("heads")},
                      {"head_dim", v.attr("head_dim")},
                      {"theta", v.attr("theta")},
                      {"factor", v.attr("factor")},
                      {"low_freq_factor", v.attr("low_freq_factor")},
                      {"high_freq_factor", v.attr("high_freq_factor")},
                      {"original_max_position", v.attr("original_max_position")},
                      {"inverse", !std::get<bool>(v.attr("inverse"))}},
                     "x");
  std::vector<Value*> grads(operands.size(), nullptr);
  grads[0] = node->result();
  return grads;
}

// Types derived from packed q, k and v.
struct AttentionTypes {
  TensorType y, lse;
};

// Checks the packed operand, the attributes, and the random state if it is present.
AttentionTypes attention_types(const Call& call) {
  const TensorType& qkv = call.type("qkv");
  const int64_t heads = call.int_attr("heads");
  const int64_t kv_heads = call.int_attr("kv_heads");
  call.require(is_floating(qkv.dtype) && qkv.shape.size() == 3, "qkv is ", qkv,
               ", expected floating [batch,time,width]");
  call.require(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "heads is ", heads,
               " and kv_heads is ", kv_heads, ", expected a positive multiple");
  const int64_t parts = heads + 2 * kv_heads;
  call.require(qkv.shape[2] > 0 && qkv.shape[2] % parts == 0, "the width of qkv is ", qkv.shape[2],
               ", expected a multiple of heads + 2 kv_heads = ", parts);
  const double rate = call.double_attr("dropout");
  call.require(rate >= 0 && rate < 1, "dropout is ", format_double(rate),
               ", expected 0 <= dropout < 1");
  if (call.has_operand("rng")) {
    require_rng(call);
  } else {
    call.require(rate == 0, "dropout is ", format_double(rate), " without rng");
  }
  const int64_t width = qkv.shape[2] / parts * heads;
  return {{qkv.dtype, {qkv.shape[0], qkv.shape[1], width}, {}},
          statistics(qkv, {qkv.shape[0], heads, qkv.shape[1]})};
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
                      {"dropout", v.attr("dropout")},
                      {"stream", v.attr("stream")}},
                     "qkv");
  std::vector<Value*> grads(own.size(), nullptr);
  grads[0] = node->result();
  return grads;
}

// Replaces p in the rule by the packed heads of q, k and v: a rank that has a part of the heads has
// the same part of each.
std::string by_head(const Call& call, std::string_view rule) {
  const int64_t heads = call.int_attr("heads"), kv_heads = call.int_attr("kv_heads");
  const int64_t head_dim = row_length(call.type("qkv")) / (heads + 2 * kv_heads);
  const std::string packed =
      dims::packed("h", {heads * head_dim, kv_heads * head_dim, kv_heads * head_dim});
  std::string text;
  for (const char c : rule) text += c == 'p' ? packed : std::string(1, c);
  return text;
}

// gate|up.
std::string halves(const Call& call) {
  const int64_t half = row_length(call.type("x")) / 2;
  return dims::packed("f", {half, half});
}

// The numbers of heads are divided like the width of the packed operand.
void localize_heads(const Call& call, Call& local) {
  const Signature& signature = call.op->parsed();
  const std::string_view packed = call.op == &kRope ? "x" : "qkv";
  const int64_t width = row_length(call.type(packed));
  const int64_t part = row_length(local.type(packed));
  for (const std::string_view name : {"heads", "kv_heads"}) {
    if (call.op == &kRope && name == "kv_heads") continue;
    const int64_t heads = call.int_attr(name);
    call.require(heads * part % width == 0, name, " is ", heads, ", which does not divide over ",
                 width / part, " ranks");
    local.attrs.at(signature.attr_index(name)) = heads * part / width;
  }
}

// `matmuls` over the causal half: 2 D FLOPs for each pair of positions.
Cost cost_attention(const Call& call, double matmuls) {
  const Shape& qkv = call.type("qkv").shape;
  const int64_t heads = call.int_attr("heads");
  const int64_t head_dim = qkv[2] / (heads + 2 * call.int_attr("kv_heads"));
  const double time = static_cast<double>(qkv[1]);
  return {.flops = matmuls * static_cast<double>(qkv[0] * heads * head_dim) * time * (time + 1)};
}

}  // namespace

constinit const OpDef kLayerNorm{
    .signature = "layer_norm(x, w, b?; eps = 1e-5) -> y, mean, rstd",
    .doc =
        "y = (x - mean) * rstd * w (+ b) over the last dim, rstd = 1/sqrt(variance + eps); mean "
        "and rstd of every row are kept for the gradient.",
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_norm_operands(call);
      const TensorType& x = call.type("x");
      return {x, statistics(x, leading_dims(x)), statistics(x, leading_dims(x))};
    },
    .vjp = vjp_layer_norm,
    .cost = [](const Call& call) { return per_element(call, 8); },
    .sharding = "...N, N, N -> ...N, ..., ...",
    .samples =
        "x: f32[2,3,8], w: f32[8], b: f32[8] | x: f32[5,7], w: f32[7]; eps=1e-3 | "
        "x: bf16[3,9], w: bf16[9], b: bf16[9] | "
        "x: f32[131,259], w: f32[259], b: f32[259]",
};

constinit const OpDef kLayerNormGrad{
    .signature = "layer_norm_grad(dy, x, w, mean, rstd; out = \"\") -> dx, dw",
    .doc =
        "Gradient of layer_norm, except that of its bias, which is sum_rows(dy). `out` names the "
        "dtype of dw; if it is empty, that is the dtype of dy.",
    .traits = {.differentiable = false},
    .infer = infer_norm_grad,
    .cost = [](const Call& call) { return per_element(call, 14); },
    .sharding = "...N, ...N, N, ..., ... -> ...N, N",
    .samples =
        "dy: f32[2,3,8], x: f32[2,3,8], w: f32[8], mean: f32[2,3], rstd: f32[2,3] | "
        "dy: f32[37,5], x: f32[37,5], w: f32[5], mean: f32[37], rstd: f32[37] | "
        "dy: bf16[5,9], x: bf16[5,9], w: bf16[9], mean: f32[5], rstd: f32[5]; out=\"f32\" | "
        "dy: f32[259,131], x: f32[259,131], w: f32[131], mean: f32[259], rstd: f32[259]",
};

constinit const OpDef kRmsNorm{
    .signature = "rms_norm(x, w; eps = 1e-5) -> y, rstd",
    .doc =
        "y = x * rstd * w over the last dim, rstd = 1/sqrt(mean(x^2) + eps), which is kept for "
        "the gradient.",
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_norm_operands(call);
      const TensorType& x = call.type("x");
      return {x, statistics(x, leading_dims(x))};
    },
    .vjp = vjp_rms_norm,
    .cost = [](const Call& call) { return per_element(call, 5); },
    .sharding = "...N, N -> ...N, ...",
    .samples =
        "x: f32[2,3,8], w: f32[8] | x: f32[5,7], w: f32[7]; eps=1e-3 | "
        "x: bf16[3,9], w: bf16[9] | "
        "x: f32[131,259], w: f32[259]",
};

constinit const OpDef kRmsNormGrad{
    .signature = "rms_norm_grad(dy, x, w, rstd; out = \"\") -> dx, dw",
    .doc =
        "Gradient of rms_norm. `out` names the dtype of dw; if it is empty, that is the dtype of "
        "dy.",
    .traits = {.differentiable = false},
    .infer = infer_norm_grad,
    .cost = [](const Call& call) { return per_element(call, 11); },
    .sharding = "...N, ...N, N, ... -> ...N, N",
    .samples =
        "dy: f32[2,3,8], x: f32[2,3,8], w: f32[8], rstd: f32[2,3] | "
        "dy: f32[37,5], x: f32[37,5], w: f32[5], rstd: f32[37] | "
        "dy: bf16[5,9], x: bf16[5,9], w: bf16[9], rstd: f32[5]; out=\"f32\" | "
        "dy: f32[259,131], x: f32[259,131], w: f32[131], rstd: f32[259]",
};

constinit const OpDef kSwiglu{
    .signature = "swiglu(x) -> y",
    .doc = "x [...,2f] is gate and up side by side; y [...,f] = silu(gate) * up.",
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_floating(call, "x", 1);
      const TensorType& x = call.type("x");
      call.require(row_length(x) % 2 == 0, "x is ", x, ", expected an even last dim");
      return {{x.dtype, append_dim(leading_dims(x), row_length(x) / 2), {}}};
    },
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      return {v.add(kSwigluGrad, {only_grad(v), v.operand("x")}, {}, "x")->result()};
    },
    .cost = [](const Call& call) { return per_element(call, 8); },
    .sharding_of = [](const Call& call) { return cat("...", halves(call), " -> ...f"); },
    .samples =
        "x: f32[2,3,10] | x: f32[5,14] | x: bf16[3,6] | "
        "x: f32[67,514]",
};

constinit const OpDef kSwigluGrad{
    .signature = "swiglu_grad(dy, x) -> dx",
    .doc = "Gradient of swiglu.",
    .traits = {.in_place = true, .differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_floating(call, "x", 1);
      const TensorType& x = call.type("x");
      call.require(row_length(x) % 2 == 0, "x is ", x, ", expected an even last dim");
      require_type(call, "dy", x.dtype, append_dim(leading_dims(x), row_length(x) / 2));
      return {x};
    },
    .cost = [](const Call& call) { return per_element(call, 8); },
    .sharding_of =
        [](const Call& call) { return cat("...f, ...", halves(call), " -> ...", halves(call)); },
    .samples =
        "dy: f32[2,3,5], x: f32[2,3,10] | dy: f32[5,7], x: f32[5,14] | "
        "dy: bf16[3,3], x: bf16[3,6] | "
        "dy: f32[67,257], x: f32[67,514]",
};

constinit const OpDef kRope{
    .signature =
        "rope(x, positions?; heads: int, head_dim: int, theta = 10000.0, factor = 0.0, "
        "low_freq_factor = 1.0, high_freq_factor = 4.0, original_max_position = 8192, "
        "inverse = false) -> y",
    .doc =
        "Rotary positions, rotate-half layout: the first `heads` heads of x [batch,time,width] are "
        "rotated by position, the rest are copied. Row t is at position t, or at the one given by "
        "`positions` [batch,time]. factor > 0 scales the frequencies as Llama 3.1 does; `inverse` "
        "rotates back, which is the gradient.",
    .traits = {.linear = true},
    .infer = infer_rope,
    .vjp = vjp_rope,
    .cost = [](const Call& call) { return per_element(call, 3); },
    .sharding_of =
        [](const Call& call) {
          const int64_t rotated = call.int_attr("heads") * call.int_attr("head_dim");
          const int64_t rest = row_length(call.type("x")) - rotated;
          const std::string dim =
              dims::packed("h", rest == 0 ? std::vector{rotated} : std::vector{rotated, rest});
          return cat("bT", dim, ", bT -> bT", dim);
        },
    .localize = localize_heads,
    .samples =
        "x: f32[2,5,24]; heads=4, head_dim=4 | "
        "x: f32[1,7,16]; heads=2, head_dim=8, inverse=true | "
        "x: f32[2,3,64]; heads=1, head_dim=64, theta=500000.0, factor=8.0, "
        "original_max_position=32 | x: bf16[1,9,8]; heads=1, head_dim=8 | "
        "x: f32[2,9,24], positions: i32[2,9]; heads=2, head_dim=8 | "
        "x: f32[2,131,96]; heads=5, head_dim=16",
};

constinit const OpDef kAttention{
    .signature =
        "attention(qkv, rng?; heads: int, kv_heads: int, dropout = 0.0, stream = 0) -> y, "
        "lse",
    .doc =
        "Causal attention with scale 1/sqrt(D) over packed qkv [batch,time,(heads+2 kv_heads)*D] "
        "to y [batch,time,heads*D]; query head h reads key head h / (heads/kv_heads). `dropout` "
        "acts on the probabilities [batch,heads,time,time], whose random numbers follow from rng "
        "as those of `dropout` do. lse [batch,heads,time] is kept for the gradient.",
    .traits = {.matmul = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const AttentionTypes types = attention_types(call);
      return {types.y, types.lse};
    },
    .vjp = [](Vjp& v) { return vjp_attention(v, kAttentionGrad); },
    .cost = [](const Call& call) { return cost_attention(call, 2); },
    .sharding_of = [](const Call& call) { return by_head(call, "bTp, R -> bTh, bhT"); },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "qkv: f32[2,5,24]; heads=2, kv_heads=2 | qkv: f32[1,7,24]; heads=4, kv_heads=2 | "
        "qkv: f32[2,6,12], rng: i32[4]; heads=2, kv_heads=1, dropout=0.25, stream=11 | "
        "qkv: f32[1,33,15]; heads=3, kv_heads=1 | qkv: bf16[1,9,24]; heads=1, kv_heads=1 | "
        "qkv: f32[2,131,128], rng: i32[4]; heads=4, kv_heads=2, dropout=0.1, stream=5 | "
        "qkv: f32[2,6,12], rng: i32[6]; heads=2, kv_heads=1, dropout=0.25, stream=11 | "
        "qkv: f32[2,36,32], rng: i32[6]; heads=2, kv_heads=1, dropout=0.1, stream=5",
};

constinit const OpDef kAttentionGrad{
    .signature =
        "attention_grad(dy, qkv, y, lse, rng?; heads: int, kv_heads: int, dropout = 0.0, "
        "stream = 0) -> dqkv",
    .doc = "Gradient of attention; recomputes the probabilities from lse.",
    .traits = {.differentiable = false, .matmul = true},
    .infer = infer_attention_grad,
    .cost = [](const Call& call) { return cost_attention(call, 5); },
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
        "heads=2, kv_heads=1, dropout=0.1, stream=5",
};

constinit const OpDef kDocumentAttention{
    .signature =
        "document_attention(qkv, positions, rng?; heads: int, kv_heads: int, dropout = 0.0, "
        "stream = 0) -> y, lse",
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
    .cost = [](const Call& call) { return cost_attention(call, 2); },
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
        "stream=11",
};

constinit const OpDef kDocumentAttentionGrad{
    .signature =
        "document_attention_grad(dy, qkv, y, lse, positions, rng?; heads: int, kv_heads: int, "
        "dropout = 0.0, stream = 0) -> dqkv",
    .doc = "Gradient of document_attention.",
    .traits = {.differentiable = false, .matmul = true},
    .infer =
        [](const Call& call) {
          std::vector<TensorType> types = infer_attention_grad(call);
          require_positions(call, call.type("qkv"));
          return types;
        },
    .cost = [](const Call& call) { return cost_attention(call, 5); },
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
        "rng: i32[6]; heads=2, kv_heads=1, dropout=0.25, stream=11",
};

}  // namespace weft

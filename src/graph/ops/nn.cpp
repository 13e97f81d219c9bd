// The layers of a transformer other than attention: norms and gates.
#include "graph/dims.h"
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

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

// gate|up.
std::string halves(const Call& call) {
  const int64_t half = row_length(call.type("x")) / 2;
  return dims::packed("f", {half, half});
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

}  // namespace weft

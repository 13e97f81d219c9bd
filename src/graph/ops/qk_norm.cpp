// The norm of every query and key head, with weights and without.
#include "graph/dims.h"
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

struct QkHeads {
  int64_t q = 0, kv = 0, dim = 0;
};

// Checks `operand`, packed heads q|k|v [...,width].
QkHeads qk_heads(const Call& call, std::string_view operand) {
  require_floating(call, operand, 1);
  QkHeads heads{call.int_attr("heads"), call.int_attr("kv_heads")};
  const TensorType& x = call.type(operand);
  const int64_t parts = heads.q + 2 * heads.kv;
  call.require(heads.q > 0 && heads.kv > 0 && row_length(x) % parts == 0, operand, " is ", x,
               ", expected rows of heads + 2 kv_heads = ", parts, " heads");
  heads.dim = row_length(x) / parts;
  return heads;
}

void require_weights(const Call& call, DType dtype, int64_t head_dim) {
  for (const std::string_view weight : {"q", "k"}) require_type(call, weight, dtype, {head_dim});
}

TensorType head_statistics(const TensorType& x, const QkHeads& heads) {
  return statistics(x, append_dim(leading_dims(x), heads.q + heads.kv));
}

// 'p' stands for the packed heads, 'r' for one number per query and key head.
std::string by_head(const Call& call, std::string_view rule) {
  const auto [q, kv, dim] = qk_heads(call, "x");
  std::string text;
  for (const char c : rule) {
    text += c == 'p'   ? dims::packed("h", {q * dim, kv * dim, kv * dim})
            : c == 'r' ? dims::packed("h", {q, kv})
                       : std::string(1, c);
  }
  return text;
}

void localize_heads(const Call& call, Call& local) {
  const int64_t ranks = row_length(call.type("x")) / row_length(local.type("x"));
  for (const std::string_view name : {"heads", "kv_heads"}) {
    local.attrs.at(call.op->parsed().attr_index(name)) = call.int_attr(name) / ranks;
  }
}

std::vector<Value*> vjp_qk_norm(Vjp& v) {
  Value* dy = only_grad(v);
  Node* grad =
      v.add(kQkNormGrad, {dy, v.operand("x"), v.result("rstd"), v.operand("q"), v.operand("k")},
            {{"heads", v.attr("heads")},
             {"kv_heads", v.attr("kv_heads")},
             {"out", grad_out(v, "q", dy->type.dtype)}},
            "x");
  return {grad->result("dx"), grad->result("dq"), grad->result("dk")};
}

// The result of a norm and what is kept for its gradient.
std::vector<TensorType> normed_types(const Call& call) {
  const QkHeads heads = qk_heads(call, "x");
  return {call.type("x"), head_statistics(call.type("x"), heads)};
}

// Checks the operands of a gradient that all norms have; returns the heads.
QkHeads require_normed(const Call& call) {
  const QkHeads heads = qk_heads(call, "x");
  const TensorType& x = call.type("x");
  require_type(call, "dy", x.dtype, x.shape);
  const TensorType rstd = head_statistics(x, heads);
  require_type(call, "rstd", rstd.dtype, rstd.shape);
  return heads;
}

}  // namespace

constinit const OpDef kQkNorm{
    .signature = "qk_norm(x, q, k; heads: int, kv_heads: int, eps = 1e-6) -> y, rstd",
    .doc =
        "rms_norm of every head of q and k in packed x = q|k|v [...,(heads+2 kv_heads)*D], with "
        "the weights q [D] and k [D]; heads of v are copied. rstd "
        "[...,heads+kv_heads] is kept for the gradient.",
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_weights(call, call.type("x").dtype, qk_heads(call, "x").dim);
      return normed_types(call);
    },
    .vjp = vjp_qk_norm,
    .cost = [](const Call& call) { return per_element(call, 5); },
    .sharding_of = [](const Call& call) { return by_head(call, "...p, D, D -> ...p, ...r"); },
    .localize = localize_heads,
    .samples =
        "x: f32[2,3,16], q: f32[4], k: f32[4]; heads=2, kv_heads=1 | "
        "x: f32[2,5,24], q: f32[4], k: f32[4]; heads=4, kv_heads=1, eps=1e-3 | "
        "x: bf16[1,3,24], q: bf16[6], k: bf16[6]; heads=2, kv_heads=1 | "
        "x: f32[3,43,256], q: f32[32], k: f32[32]; heads=4, kv_heads=2",
};

constinit const OpDef kQkNormGrad{
    .signature =
        "qk_norm_grad(dy, x, rstd, q, k; heads: int, kv_heads: int, out = \"\") -> dx, dq, dk",
    .doc =
        "Gradient of qk_norm; dq and dk are sums over all rows and heads. `out` "
        "names their dtype; if it is empty, that is the dtype of dy.",
    .traits = {.differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const QkHeads heads = require_normed(call);
      const TensorType& x = call.type("x");
      require_weights(call, x.dtype, heads.dim);
      const TensorType dw{out_dtype(call, x.dtype), {heads.dim}, {}};
      return {x, dw, dw};
    },
    .cost = [](const Call& call) { return per_element(call, 11); },
    .sharding_of =
        [](const Call& call) { return by_head(call, "...p, ...p, ...r, D, D -> ...p, D, D"); },
    .localize = localize_heads,
    .samples =
        "dy: f32[2,3,16], x: f32[2,3,16], rstd: f32[2,3,3], q: f32[4], k: f32[4]; heads=2, "
        "kv_heads=1 | dy: f32[2,5,24], x: f32[2,5,24], rstd: f32[2,5,5], q: f32[4], k: f32[4]; "
        "heads=4, kv_heads=1 | "
        "dy: bf16[1,3,24], x: bf16[1,3,24], rstd: f32[1,3,3], q: bf16[6], k: bf16[6]; heads=2, "
        "kv_heads=1, out=\"f32\" | dy: f32[3,43,256], x: f32[3,43,256], rstd: f32[3,43,6], "
        "q: f32[32], k: f32[32]; heads=4, kv_heads=2",
};

constinit const OpDef kQkUnitNorm{
    .signature = "qk_unit_norm(x; heads: int, kv_heads: int, eps = 1e-6) -> y, rstd",
    .doc = "As qk_norm, without weights.",
    .infer = normed_types,
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      return {v.add(kQkUnitNormGrad, {only_grad(v), v.operand("x"), v.result("rstd")},
                    {{"heads", v.attr("heads")}, {"kv_heads", v.attr("kv_heads")}}, "x")
                  ->result()};
    },
    .cost = [](const Call& call) { return per_element(call, 4); },
    .sharding_of = [](const Call& call) { return by_head(call, "...p -> ...p, ...r"); },
    .localize = localize_heads,
    .samples =
        "x: f32[2,3,16]; heads=2, kv_heads=1 | x: f32[2,5,24]; heads=4, kv_heads=1, eps=1e-3 | "
        "x: bf16[1,3,24]; heads=2, kv_heads=1 | x: f32[3,43,256]; heads=4, kv_heads=2",
};

constinit const OpDef kQkUnitNormGrad{
    .signature = "qk_unit_norm_grad(dy, x, rstd; heads: int, kv_heads: int) -> dx",
    .doc = "Gradient of qk_unit_norm.",
    .traits = {.differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_normed(call);
      return {call.type("x")};
    },
    .cost = [](const Call& call) { return per_element(call, 8); },
    .sharding_of = [](const Call& call) { return by_head(call, "...p, ...p, ...r -> ...p"); },
    .localize = localize_heads,
    .samples =
        "dy: f32[2,3,16], x: f32[2,3,16], rstd: f32[2,3,3]; heads=2, kv_heads=1 | "
        "dy: f32[2,5,24], x: f32[2,5,24], rstd: f32[2,5,5]; heads=4, kv_heads=1 | "
        "dy: bf16[1,3,24], x: bf16[1,3,24], rstd: f32[1,3,3]; heads=2, kv_heads=1 | "
        "dy: f32[3,43,256], x: f32[3,43,256], rstd: f32[3,43,6]; heads=4, kv_heads=2",
};

}  // namespace weft

// The losses of a router: the auxiliary loss, which is smallest where all experts get the same
// number of tokens, and the z-loss, which keeps logits small.
//
//   E experts   c_i tokens of expert i   p_ti share of expert i in the scores of token t
//   loss = 1/count sum_t (aux E / (sum_j c_j) sum_i c_i p_ti + z lse_t^2)
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

void require_router(const Call& call) {
  require_floating(call, "logits", 1);
  const TensorType& logits = call.type("logits");
  call.require(logits.dtype == stat_dtype(logits), "logits is ", logits, ", expected f32");
  require_type(call, "counts", logits.dtype, {1, row_length(logits)});
  require_type(call, "count", DType::F32, {});
  for (const std::string_view coefficient : {"aux", "z"}) {
    const double value = call.double_attr(coefficient);
    call.require(value >= 0, coefficient, " is ", value, ", expected 0 or more");
  }
}

}  // namespace

constinit const OpDef kRouterLoss{
    .signature =
        "router_loss(logits, counts, count; aux: float, z: float, sigmoid = false) -> loss, lse",
    .doc =
        "loss = sum over tokens of (aux * E * sum over experts of share * p + z * lse^2) / count. "
        "The share of an expert is its part of `counts`, a constant; p is the softmax of logits "
        "[...,E], or their sigmoid divided by its sum over the experts. lse is the log of the sum "
        "of exponentials, kept for the gradient.",
    .constants = "counts",
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_router(call);
      const TensorType& logits = call.type("logits");
      return {{logits.dtype, {}, {}}, {logits.dtype, leading_dims(logits), {}}};
    },
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      Node* grad = v.add(
          kRouterLossGrad,
          {only_grad(v), v.operand("logits"), v.operand("counts"), v.result("lse"),
           v.operand("count")},
          {{"aux", v.attr("aux")}, {"z", v.attr("z")}, {"sigmoid", v.attr("sigmoid")}}, "logits");
      return {grad->result(), nullptr, nullptr};
    },
    .cost = [](const Call& call) { return per_operand_element(call, "logits", 12); },
    .sharding = "...E, LE, -> , ...",
    .samples =
        "logits: f32[2,3,8], counts: f32[1,8], count: f32[]; aux=0.5, z=0.25 | "
        "logits: f32[2,5,6], counts: f32[1,6], count: f32[]; aux=0.5, z=0.25, sigmoid=true | "
        "logits: f32[7,4], counts: f32[1,4], count: f32[]; aux=0.0, z=1.0 | "
        "logits: f32[3,131,64], counts: f32[1,64], count: f32[]; aux=1.0, z=0.0 | "
        "logits: f32[3,131,67], counts: f32[1,67], count: f32[]; aux=1.0, z=0.001, sigmoid=true",
};

constinit const OpDef kRouterLossGrad{
    .signature =
        "router_loss_grad(dloss, logits, counts, lse, count; aux: float, z: float, sigmoid = "
        "false) -> d_logits",
    .doc = "Gradient of router_loss with respect to its logits.",
    .traits = {.differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_router(call);
      const TensorType& logits = call.type("logits");
      require_type(call, "dloss", logits.dtype, {});
      require_type(call, "lse", logits.dtype, leading_dims(logits));
      return {logits};
    },
    .cost = [](const Call& call) { return per_element(call, 12); },
    .sharding = ", ...E, LE, ..., -> ...E",
    .samples =
        "dloss: f32[], logits: f32[2,3,8], counts: f32[1,8], lse: f32[2,3], count: f32[]; aux=0.5, "
        "z=0.25 | "
        "dloss: f32[], logits: f32[2,5,6], counts: f32[1,6], lse: f32[2,5], count: f32[]; aux=0.5, "
        "z=0.25, sigmoid=true | "
        "dloss: f32[], logits: f32[7,4], counts: f32[1,4], lse: f32[7], count: f32[]; aux=0.0, "
        "z=1.0 | "
        "dloss: f32[], logits: f32[3,131,64], counts: f32[1,64], lse: f32[3,131], count: f32[]; "
        "aux=1.0, z=0.0 | "
        "dloss: f32[], logits: f32[3,131,67], counts: f32[1,67], lse: f32[3,131], count: f32[]; "
        "aux=1.0, z=0.001, sigmoid=true",
};

}  // namespace weft

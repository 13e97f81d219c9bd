// Heads of multi-head latent attention: every key head has a part of its own and one that all heads
// share, and heads of v have a size of their own.
#include "base/attention_heads.h"
#include "graph/dims.h"
#include "graph/ops/attention_rules.h"
#include "graph/ops/ops.h"

namespace weft {
namespace {

// Sizes of the heads, and of the part of a key that all heads share.
struct LatentHeads {
  AttentionHeads heads;
  int64_t shared = 0;

  int64_t own() const { return heads.dim - shared; }
  int64_t kv_width() const { return heads.q * (own() + heads.value_dim); }
};

// The packed heads of q, k and v.
std::string packed_dim(const AttentionHeads& heads) {
  return dims::packed("h", {heads.q_width(), heads.k_width(), heads.v_width()});
}

LatentHeads latent_heads(const Call& call) {
  const TensorType& q = call.type("q");
  const int64_t heads = call.int_attr("heads");
  call.require(is_floating(q.dtype) && q.shape.size() == 3 && heads > 0 && q.shape[2] % heads == 0,
               "q is ", q, " and heads is ", heads,
               ", expected floating [batch,time,width] with as many heads");
  for (const std::string_view name : {"kv", "shared"}) {
    const TensorType& part = call.type(name);
    call.require(part.dtype == q.dtype && part.shape.size() == 3 &&
                     leading_dims(part) == leading_dims(q) && row_length(part) > 0,
                 name, " is ", part, ", expected rows like those of q, ", q);
  }
  const int64_t shared = row_length(call.type("shared")), dim = q.shape[2] / heads;
  const int64_t kv = row_length(call.type("kv")), own = dim - shared;
  call.require(own > 0 && kv % heads == 0 && kv / heads > own, "heads of q have ", dim,
               " elements, shared has ", shared, " and kv has ", kv, " for ", heads,
               " heads, expected more of q than shared, and the rest of each key next to a value");
  return {{.q = heads, .kv = heads, .dim = dim, .value_dim = kv / heads - own}, shared};
}

LatentHeads latent_heads_of_grad(const Call& call) {
  const TensorType& dqkv = call.type("dqkv");
  const int64_t heads = call.int_attr("heads"), shared = call.int_attr("shared_dim");
  const int64_t value_dim = call.int_attr("value_dim");
  call.require(is_floating(dqkv.dtype) && dqkv.shape.size() == 3 && heads > 0 && shared > 0 &&
                   value_dim > 0 && row_length(dqkv) % heads == 0,
               "dqkv is ", dqkv, " for ", heads, " heads, value_dim is ", value_dim,
               " and shared_dim is ", shared, ", expected [batch,time,width] with these heads");
  const int64_t keys = row_length(dqkv) / heads - value_dim;
  call.require(keys % 2 == 0 && keys / 2 > shared, "dqkv has ", keys + value_dim,
               " elements per head, expected q and k of more than shared_dim = ", shared,
               " elements and v of ", value_dim);
  return {{.q = heads, .kv = heads, .dim = keys / 2, .value_dim = value_dim}, shared};
}

}  // namespace

constinit const OpDef kLatentQkv{
    .signature = "latent_qkv(q, kv, shared; heads: int) -> qkv",
    .doc =
        "Packed q|k|v [batch,time,heads*(2D+V)] for attention from q [batch,time,heads*D], kv "
        "[batch,time,heads*(D-S+V)], which for every head has the first part of its key and then "
        "its value, and shared [batch,time,S], the last part of the key of every head.",
    .traits = {.linear = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      TensorType qkv = call.type("q");
      qkv.shape[2] = latent_heads(call).heads.packed_width();
      return {qkv};
    },
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      const int64_t heads = std::get<int64_t>(v.attr("heads"));
      const int64_t shared = row_length(v.operand("shared")->type);
      const int64_t own = row_length(v.operand("q")->type) / heads - shared;
      const Node* grad = v.add(kLatentQkvGrad, {only_grad(v)},
                               {{"heads", heads},
                                {"value_dim", row_length(v.operand("kv")->type) / heads - own},
                                {"shared_dim", shared}},
                               "q");
      return {grad->result("dq"), grad->result("dkv"), grad->result("dshared")};
    },
    .sharding_of =
        [](const Call& call) {
          return cat("bsh, bsh, bsR -> bs", packed_dim(latent_heads(call).heads));
        },
    .localize = localize_heads,
    .samples =
        "q: f32[2,3,10], kv: f32[2,3,12], shared: f32[2,3,2]; heads=2 | "
        "q: bf16[1,5,12], kv: bf16[1,5,14], shared: bf16[1,5,4]; heads=2 | "
        "q: f32[2,67,96], kv: f32[2,67,104], shared: f32[2,67,8]; heads=4",
};

constinit const OpDef kLatentQkvGrad{
    .signature =
        "latent_qkv_grad(dqkv; heads: int, value_dim: int, shared_dim: int) -> dq, dkv, dshared",
    .doc = "Gradient of latent_qkv; dshared is the sum over the heads, in order.",
    .traits = {.differentiable = false, .linear = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const LatentHeads latent = latent_heads_of_grad(call);
      TensorType dq = call.type("dqkv"), dkv = dq, dshared = dq;
      dq.shape[2] = latent.heads.q_width();
      dkv.shape[2] = latent.kv_width();
      dshared.shape[2] = latent.shared;
      return {dq, dkv, dshared};
    },
    .cost = [](const Call& call) { return per_operand_element(call, "dqkv", 1); },
    .sharding_of =
        [](const Call& call) {
          return cat("bs", packed_dim(latent_heads_of_grad(call).heads), " -> bsh, bsh, bsR");
        },
    .localize = localize_heads,
    .samples =
        "dqkv: f32[2,3,26]; heads=2, value_dim=3, shared_dim=2 | "
        "dqkv: bf16[1,5,34]; heads=2, value_dim=5, shared_dim=4 | "
        "dqkv: f32[2,67,232]; heads=4, value_dim=10, shared_dim=8",
};

}  // namespace weft

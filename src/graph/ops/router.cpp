// Which experts a token goes to, and where its rows lie among theirs.
#include <algorithm>

#include "graph/ops/ops.h"
#include "graph/ops/row_slots.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

void require_groups(const Call& call, int64_t experts) {
  const int64_t top_k = call.int_attr("top_k");
  const int64_t groups = call.int_attr("groups"), kept = call.int_attr("keep_groups");
  call.require(groups > 0 && experts % groups == 0, "groups is ", groups,
               ", expected a divisor of the ", experts, " experts");
  call.require(kept > 0 && kept <= groups, "keep_groups is ", kept, ", expected 1 to ", groups);
  const int64_t open = experts / groups * kept;
  call.require(top_k > 0 && top_k <= open, "top_k is ", top_k, ", expected 1 to ", open,
               ", the experts of the groups that are kept");
}

TensorType choices(const Call& call, std::string_view operand, int64_t top_k) {
  return {DType::I32, append_dim(leading_dims(call.type(operand)), top_k), {}};
}

std::vector<TensorType> infer_router(const Call& call) {
  require_floating(call, "logits", 1);
  const TensorType& logits = call.type("logits");
  call.require(logits.dtype == stat_dtype(logits), "logits is ", logits, ", expected f32");
  const int64_t experts = row_length(logits);
  require_groups(call, experts);
  if (call.has_operand("bias")) require_type(call, "bias", logits.dtype, {experts});
  const TensorType index = choices(call, "logits", call.int_attr("top_k"));
  return {{logits.dtype, index.shape, {}}, index};
}

std::vector<Value*> vjp_router(Vjp& v) {
  Node* grad = v.add(kRouterGrad,
                     {only_grad(v), v.operand("logits"), v.result("index"), v.result("weights")},
                     {{"sigmoid", v.attr("sigmoid")},
                      {"normalize", v.attr("normalize")},
                      {"scale", v.attr("scale")}},
                     "logits");
  std::vector<Value*> grads = {grad->result()};
  grads.resize(v.node().operands.size(), nullptr);
  return grads;
}

std::vector<TensorType> infer_route(const Call& call) {
  const TensorType& index = call.type("index");
  call.require(index.dtype == DType::I32 && index.shape.size() == 3, "index is ", index,
               ", expected i32[batch,time,choices]");
  const RowSlots rows = row_slots(call, index);
  const int64_t experts = call.int_attr("experts");
  call.require(experts > 0 && experts % rows.parts == 0, "experts is ", experts,
               ", expected a multiple of parts, ", rows.parts);
  return {{DType::I32, {rows.sources, rows.parts, experts / rows.parts + 1}, {}}, index};
}

}  // namespace

constinit const OpDef kRouter{
    .signature =
        "router(logits, bias?; top_k: int, sigmoid = false, normalize = false, groups = 1, "
        "keep_groups = 1, scale = 1.0) -> weights, index",
    .doc =
        "The `top_k` experts of every token, best first, and their weights. Scores are the softmax "
        "of logits [...,E], or their sigmoid; a bias [E] is added for the choice only. Of equal "
        "scores the lower index wins. Of `groups` groups of experts, only the `keep_groups` with "
        "the largest sums of two scores are open. Weights are the scores of the chosen, with "
        "`normalize` divided by their sum, times `scale`.",
    .traits = {.decides = true},
    .constants = "bias",
    .infer = infer_router,
    .vjp = vjp_router,
    .cost = [](const Call& call) { return per_operand_element(call, "logits", 12); },
    .sharding = "...E, E -> ...K, ...K",
    .samples =
        "logits: f32[2,3,8]; top_k=2 | logits: f32[2,5,8]; top_k=3, normalize=true | "
        "logits: f32[2,3,8], bias: f32[8]; top_k=2, sigmoid=true, normalize=true, groups=4, "
        "keep_groups=2, scale=2.5 | logits: f32[1,7,6]; top_k=1, sigmoid=true | "
        "logits: f32[2,4,6]; top_k=4, sigmoid=true, normalize=true | "
        "logits: f32[3,131,64], bias: f32[64]; top_k=6, sigmoid=true, groups=8, keep_groups=3 | "
        "logits: f32[3,131,64]; top_k=8, normalize=true",
};

constinit const OpDef kRouterGrad{
    .signature =
        "router_grad(d_weights, logits, index, weights; sigmoid = false, normalize = false, scale "
        "= 1.0) -> d_logits",
    .doc =
        "Gradient of router with respect to its logits; none flows through the choice of experts.",
    .traits = {.differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_floating(call, "logits", 1);
      const TensorType& logits = call.type("logits");
      const TensorType& index = call.type("index");
      call.require(!index.shape.empty() && row_length(index) <= row_length(logits), "index is ",
                   index, ", expected at most ", row_length(logits), " choices");
      const TensorType expected = choices(call, "logits", row_length(index));
      require_type(call, "index", DType::I32, expected.shape);
      for (const std::string_view weights : {"d_weights", "weights"}) {
        require_type(call, weights, logits.dtype, expected.shape);
      }
      return {logits};
    },
    .cost = [](const Call& call) { return per_element(call, 8); },
    .sharding = "...K, ...E, ...K, ...K -> ...E",
    .samples =
        "d_weights: f32[2,3,2], logits: f32[2,3,8], index: i32[2,3,2], weights: f32[2,3,2] | "
        "d_weights: f32[2,5,3], logits: f32[2,5,8], index: i32[2,5,3], weights: f32[2,5,3]; "
        "normalize=true, scale=1.5 | "
        "d_weights: f32[2,3,2], logits: f32[2,3,8], index: i32[2,3,2], weights: f32[2,3,2]; "
        "sigmoid=true, normalize=true, scale=2.5 | "
        "d_weights: f32[1,7,1], logits: f32[1,7,6], index: i32[1,7,1], weights: f32[1,7,1]; "
        "sigmoid=true | "
        "d_weights: f32[3,131,8], logits: f32[3,131,64], index: i32[3,131,8], weights: "
        "f32[3,131,8]",
};

constinit const OpDef kRoute{
    .signature = "route(index; experts: int, slots: int, parts = 1, sources = 1) -> offsets, at",
    .doc =
        "Where the rows of every token lie among those of its experts. The tokens [batch,time] of "
        "each of `sources` sources are sorted by (expert, token, choice). Experts are divided "
        "evenly among `parts` destinations with `slots` rows each. Expert q of destination d has "
        "the rows offsets[source,d,q] up to offsets[source,d,q+1]; `at` is d * slots + row, or -1 "
        "for a row beyond the slots.",
    .traits = {.differentiable = false, .decides = true},
    .infer = infer_route,
    .sharding = "bsK -> g<bs>PQ, bsK",
    .localize = [](const Call& call, Call& local) { localize_sources(call.type("index"), local); },
    .samples =
        "index: i32[2,3,2]; experts=4, slots=12 | index: i32[2,5,3]; experts=8, slots=12, parts=4 "
        "| index: i32[3,4,1]; experts=6, slots=3, parts=2 | "
        "index: i32[1,67,6]; experts=64, slots=402 | index: i32[2,130,4]; experts=16, slots=200, "
        "parts=4",
};

constinit const OpDef kExpertCounts{
    .signature = "expert_counts(index...; experts: int) -> counts",
    .doc = "How many tokens chose each expert, one row per operand. Counts are exact up to 2^24.",
    .traits = {.differentiable = false, .decides = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const int64_t experts = call.int_attr("experts");
      for (const TensorType& index : call.operands) {
        call.require(index.dtype == DType::I32 && !index.shape.empty(), "index is ", index,
                     ", expected i32[...,choices]");
      }
      call.require(experts > 0 && !call.operands.empty(), "experts is ", experts, " for ",
                   call.operands.size(), " operands, expected positive numbers");
      return {{DType::F32, {std::ssize(call.operands), experts}, {}}};
    },
    .sharding = "...K -> LE",
    .samples =
        "index: i32[2,3,2]; experts=4 | index: i32[7,3], index: i32[7,3]; experts=8 | "
        "index: i32[3,131,6], index: i32[3,131,6], index: i32[3,131,6]; experts=64",
};

constinit const OpDef kLostRows{
    .signature = "lost_rows(at...) -> rows",
    .doc = "How many choices found no room among the rows of their expert, one number per operand.",
    .traits = {.differentiable = false, .decides = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      for (const TensorType& at : call.operands) {
        call.require(at.dtype == DType::I32 && !at.shape.empty(), "at is ", at,
                     ", expected i32[...,choices]");
      }
      call.require(!call.operands.empty(), "no operands, expected one or more");
      return {{DType::F32, {std::ssize(call.operands)}, {}}};
    },
    .sharding = "...K -> L",
    .samples = "at: i32[2,3,2] | at: i32[2,7,3], at: i32[2,7,3] | at: i32[3,131,6]",
};

constinit const OpDef kGuardNorm{
    .signature = "guard_norm(norm, lost) -> norm2",
    .doc =
        "The norm of the gradients, or -1 if rows were lost: such a step updates nothing and is "
        "run again with room for all rows.",
    .traits = {.differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_type(call, "norm", DType::F32, {});
      require_floating(call, "lost", 1);
      require_type(call, "lost", DType::F32, call.type("lost").shape);
      return {call.type("norm")};
    },
    .cost = [](const Call& call) { return per_operand_element(call, "lost", 1); },
    .sharding = ", L -> ",
    .samples = "norm: f32[], lost: f32[1] | norm: f32[], lost: f32[3]",
};

constinit const OpDef kBalanceRouter{
    .signature = "balance_router(counts, coefficient, bias...; rate: float) -> bias2...",
    .doc =
        "Balances the load of experts in place: in every layer, the bias of an expert with fewer "
        "tokens than the mean grows by `rate`, and that of one with more shrinks by it. Does "
        "nothing if the coefficient is 0, which means no update.",
    .traits = {.effect = true, .differentiable = false},
    .overwrites = "bias2<-bias",
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const TensorType& counts = call.type("counts");
      require_floating(call, "counts", 2);
      require_type(call, "coefficient", DType::F32, {});
      const size_t first = call.op->parsed().operand_index("bias");
      const int64_t layers = std::ssize(call.operands) - static_cast<int64_t>(first);
      require_type(call, "counts", DType::F32, {layers, row_length(counts)});
      for (size_t i = first; i < call.operands.size(); ++i) {
        require_type(call, i, DType::F32, {row_length(counts)});
      }
      return {call.operands.begin() + static_cast<std::ptrdiff_t>(first), call.operands.end()};
    },
    .cost = [](const Call& call) { return per_operand_element(call, "counts", 3); },
    .sharding_of =
        [](const Call& call) {
          const std::vector<std::string> biases(call.results.size(), "E");
          return cat("LE, , ", join(biases, ", "), " -> ", join(biases, ", "));
        },
    .samples =
        "counts: f32[2,4], coefficient: f32[], bias: f32[4], bias: f32[4]; rate=0.001 | "
        "counts: f32[1,67], coefficient: f32[], bias: f32[67]; rate=0.5",
};

}  // namespace weft

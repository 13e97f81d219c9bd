// The rows of tokens on their way to experts and back, and what the experts compute. Rows beyond
// the offsets of an expert's destination are neither read nor written.
#include "graph/dims.h"
#include "graph/ops/ops.h"
#include "graph/ops/row_slots.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

// `at` [batch,time,choices] of the tokens of operand `tokens` [batch,time,...].
void require_at(const Call& call, std::string_view tokens) {
  const TensorType& at = call.type("at");
  call.require(at.shape.size() == 3 && leading_dims(at) == leading_dims(call.type(tokens)),
               "at is ", at, ", expected [batch,time,choices] for ", tokens, ", ",
               call.type(tokens));
  require_type(call, "at", DType::I32, at.shape);
}

// Operand `rows` [sources,parts,slots,...] of the tokens of `at`.
void require_rows(const Call& call, std::string_view rows, size_t rank) {
  const TensorType& type = call.type(rows);
  const TensorType& at = call.type("at");
  call.require(is_floating(type.dtype) && type.shape.size() == rank, rows, " is ", type,
               ", expected floating [sources,parts,slots,...] with ", rank, " dims");
  call.require(at.dtype == DType::I32 && at.shape.size() == 3 && row_count(at) % type.shape[0] == 0,
               "at is ", at, ", expected i32[batch,time,choices] for ", type.shape[0], " sources");
}

// The number of experts of `offsets` [sources,parts,experts/parts+1] for `rows`.
int64_t require_offsets(const Call& call, std::string_view rows) {
  require_floating(call, rows, 4);
  const TensorType& type = call.type(rows);
  const TensorType& offsets = call.type("offsets");
  const bool fits = offsets.dtype == DType::I32 && offsets.shape.size() == 3 &&
                    type.shape.size() == 4 && offsets.shape[0] == type.shape[0] &&
                    offsets.shape[1] == type.shape[1] && offsets.shape[2] > 1;
  call.require(fits, "offsets is ", offsets, ", expected i32[sources,parts,experts/parts+1] for ",
               rows, ", ", type);
  return offsets.shape[1] * (offsets.shape[2] - 1);
}

std::vector<Value*> vjp_dispatch(Vjp& v) {
  Value* dx = v.add(kCombine, {only_grad(v), v.operand("at")}, {}, "x")->result();
  return {dx, nullptr};
}

std::vector<Value*> vjp_combine(Vjp& v) {
  const Shape& rows = v.operand("rows")->type.shape;
  Value* d_rows = v.add(kDispatch, {only_grad(v), v.operand("at")},
                        {{"slots", rows[2]}, {"parts", rows[1]}, {"sources", rows[0]}}, "rows")
                      ->result();
  return {d_rows, nullptr};
}

std::vector<TensorType> infer_grouped_matmul(const Call& call) {
  const int64_t experts = require_offsets(call, "rows");
  const TensorType& rows = call.type("rows");
  const TensorType& w = call.type("w");
  call.require(w.shape.size() == 3, "w is ", w, ", expected three dims");
  const bool tb = call.bool_attr("tb");
  const int64_t k = row_length(rows), n = w.shape[tb ? 1 : 2];
  require_type(call, "w", rows.dtype, tb ? Shape{experts, n, k} : Shape{experts, k, n});
  return {{rows.dtype, append_dim(leading_dims(rows), n), {}}};
}

std::vector<Value*> vjp_grouped_matmul(Vjp& v) {
  Value* dy = only_grad(v);
  Value* rows = v.operand("rows");
  Value* offsets = v.operand("offsets");
  const bool tb = std::get<bool>(v.attr("tb"));
  const Attr fill = v.attr("fill");
  Value* d_rows =
      v.add(kGroupedMatmul, {dy, offsets, v.operand("w")}, {{"tb", !tb}, {"fill", fill}}, "rows")
          ->result();
  Value* dw = v.add(kGroupedMatmulGradW, {tb ? dy : rows, tb ? rows : dy, offsets},
                    {{"fill", fill}, {"out", grad_out(v, "w", dy->type.dtype)}}, "w")
                  ->result();
  return {d_rows, nullptr, dw};
}

// The FLOPs and bytes of matmuls of rows [sources,parts,slots,k], of which a part is filled, with
// weights of `weights` bytes.
Cost grouped_cost(const Call& call, const TensorType& rows, int64_t n, int64_t weights) {
  const double filled = call.double_attr("fill") * static_cast<double>(row_count(rows));
  const double k = static_cast<double>(row_length(rows)), columns = static_cast<double>(n);
  const auto bytes = static_cast<double>(dtype_bytes(rows.dtype));
  return {.flops = 2 * filled * k * columns,
          .bytes = filled * (k + columns) * bytes + static_cast<double>(weights)};
}

// Elementwise work on the filled rows.
Cost filled_cost(const Call& call, double flops_per_element) {
  double bytes = 0;
  for (const auto* types : {&call.operands, &call.results}) {
    for (const TensorType& type : *types) bytes += static_cast<double>(type.bytes());
  }
  const double fill = call.double_attr("fill");
  return {.flops = fill * flops_per_element * static_cast<double>(call.type("x").elements()),
          .bytes = fill * bytes};
}

// gate|up.
std::string halves(const Call& call) {
  const int64_t half = row_length(call.type("x")) / 2;
  return dims::packed("f", {half, half});
}

void require_gates(const Call& call) {
  require_offsets(call, "x");
  const TensorType& x = call.type("x");
  call.require(row_length(x) % 2 == 0, "x is ", x, ", expected an even last dim");
  require_type(call, "w", stat_dtype(x), leading_dims(x));
}

std::vector<Value*> vjp_weighted_swiglu(Vjp& v) {
  Node* grad = v.add(kWeightedSwigluGrad,
                     {only_grad(v), v.operand("x"), v.operand("offsets"), v.operand("w")},
                     {{"fill", v.attr("fill")}}, "x");
  return {grad->result("dx"), nullptr, grad->result("dw")};
}

// One weight per row.
void require_row_weights(const Call& call) {
  require_floating(call, "x", 1);
  const TensorType& x = call.type("x");
  require_type(call, "w", stat_dtype(x), append_dim(leading_dims(x), 1));
}

std::vector<Value*> vjp_scale_rows(Vjp& v) {
  Node* grad = v.add(kScaleRowsGrad, {only_grad(v), v.operand("x"), v.operand("w")}, {}, "x");
  return {grad->result("dx"), grad->result("dw")};
}

}  // namespace

constinit const OpDef kDispatch{
    .signature = "dispatch(x, at; slots: int, parts = 1, sources = 1) -> rows",
    .doc =
        "Copies the token x [batch,time,c] to each of its rows: rows[source, at / slots, at % "
        "slots] = x of that token, for every `at` that is not -1. Other rows are not written.",
    .traits = {.linear = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_floating(call, "x", 3);
      const TensorType& x = call.type("x");
      require_at(call, "x");
      return {{x.dtype, append_dim(row_slots(call, x).shape(), row_length(x)), {}}};
    },
    .vjp = vjp_dispatch,
    // As many rows as choices are written.
    .cost =
        [](const Call& call) {
          const auto row =
              static_cast<double>(row_length(call.type("x")) * dtype_bytes(call.type("x").dtype));
          return Cost{.bytes = 2 * row * static_cast<double>(call.type("at").elements())};
        },
    .sharding = "bsc, bsK -> g<bs>PRc",
    .localize = [](const Call& call, Call& local) { localize_sources(call.type("x"), local); },
    .samples =
        "x: f32[2,3,5], at: i32[2,3,2]; slots=12 | x: f32[2,4,6], at: i32[2,4,3]; slots=10, "
        "parts=2 | x: bf16[1,6,4], at: i32[1,6,1]; slots=3, parts=2 | "
        "x: f32[3,67,131], at: i32[3,67,4]; slots=804",
};

constinit const OpDef kCombine{
    .signature = "combine(rows, at) -> y",
    .doc =
        "y [batch,time,c] of every token is the sum of its rows, in the order of its choices; a "
        "row at -1 counts as 0. Sums are made in f32.",
    .traits = {.linear = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_rows(call, "rows", 4);
      const TensorType& rows = call.type("rows");
      return {{rows.dtype, append_dim(leading_dims(call.type("at")), row_length(rows)), {}}};
    },
    .vjp = vjp_combine,
    .cost =
        [](const Call& call) {
          const TensorType& y = call.results.at(0);
          const double choices = static_cast<double>(row_length(call.type("at")));
          return Cost{.flops = choices * static_cast<double>(y.elements()),
                      .bytes = (choices + 1) * static_cast<double>(y.bytes())};
        },
    .sharding = "g<bs>PRc, bsK -> bsc",
    .samples =
        "rows: f32[1,1,12,5], at: i32[2,3,2] | rows: f32[1,2,10,6], at: i32[2,4,3] | "
        "rows: bf16[1,2,3,4], at: i32[1,6,1] | rows: f32[1,1,804,131], at: i32[3,67,4]",
};

constinit const OpDef kDispatchWeights{
    .signature = "dispatch_weights(weights, at; slots: int, parts = 1, sources = 1) -> rows",
    .doc = "Copies the weight of every choice to its row, like dispatch.",
    .traits = {.linear = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_floating(call, "weights", 3);
      const TensorType& weights = call.type("weights");
      require_type(call, "at", DType::I32, weights.shape);
      return {{weights.dtype, row_slots(call, weights).shape(), {}}};
    },
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      Value* grad =
          v.add(kCombineWeights, {only_grad(v), v.operand("at")}, {}, "weights")->result();
      return {grad, nullptr};
    },
    .sharding = "bsK, bsK -> g<bs>PR",
    .localize = [](const Call& call,
                   Call& local) { localize_sources(call.type("weights"), local); },
    .samples =
        "weights: f32[2,3,2], at: i32[2,3,2]; slots=12 | weights: f32[2,4,3], at: i32[2,4,3]; "
        "slots=10, parts=2 | weights: f32[3,67,4], at: i32[3,67,4]; slots=804",
};

constinit const OpDef kCombineWeights{
    .signature = "combine_weights(rows, at) -> weights",
    .doc = "The element of `rows` for every choice; 0 at -1. The inverse of dispatch_weights.",
    .traits = {.differentiable = false, .linear = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_rows(call, "rows", 3);
      return {{call.type("rows").dtype, call.type("at").shape, {}}};
    },
    .sharding = "g<bs>PR, bsK -> bsK",
    .samples =
        "rows: f32[1,1,12], at: i32[2,3,2] | rows: f32[1,2,10], at: i32[2,4,3] | "
        "rows: f32[1,1,804], at: i32[3,67,4]",
};

constinit const OpDef kGroupedMatmul{
    .signature = "grouped_matmul(rows, offsets, w; tb = false, fill = 1.0) -> y",
    .doc =
        "Multiplies the rows of each expert with its weights: y = rows w[expert], or its transpose "
        "with tb; w is [experts,k,n] or [experts,n,k]. `fill` is the part of the rows that is "
        "expected below the offsets, for the cost model.",
    .traits = {.matmul = true, .bilinear = true},
    .infer = infer_grouped_matmul,
    .vjp = vjp_grouped_matmul,
    .cost =
        [](const Call& call) {
          return grouped_cost(call, call.type("rows"), row_length(call.results.at(0)),
                              call.type("w").bytes());
        },
    .sharding_of = [](const Call& call) -> std::string {
      return call.bool_attr("tb") ? "gdRk, gdQ, dnk -> gdRn" : "gdRk, gdQ, dkn -> gdRn";
    },
    .samples =
        "rows: f32[1,1,12,5], offsets: i32[1,1,5], w: f32[4,7,5]; tb=true | "
        "rows: f32[1,1,9,5], offsets: i32[1,1,4], w: f32[3,5,6] | "
        "rows: f32[2,2,6,5], offsets: i32[2,2,3], w: f32[4,3,5]; tb=true | "
        "rows: bf16[1,2,7,8], offsets: i32[1,2,3], w: bf16[4,6,8]; tb=true | "
        "rows: f32[1,1,300,67], offsets: i32[1,1,9], w: f32[8,131,67]; tb=true | "
        "rows: f32[2,1,300,131], offsets: i32[2,1,9], w: f32[8,131,67]",
};

constinit const OpDef kGroupedMatmulGradW{
    .signature = "grouped_matmul_grad_w(a, b, offsets; fill = 1.0, out = \"\") -> dw",
    .doc =
        "Gradient of the weights of grouped_matmul: for each expert the sum of a^T b over its "
        "rows, source by source, and then over the sources in a binary tree. An expert without "
        "rows gets zeros. `out` names the dtype of dw; if it is empty, that is the dtype of a.",
    .traits = {.differentiable = false, .matmul = true, .bilinear = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const int64_t experts = require_offsets(call, "a");
      const TensorType& a = call.type("a");
      const TensorType& b = call.type("b");
      require_floating(call, "b", 4);
      require_type(call, "b", a.dtype, append_dim(leading_dims(a), row_length(b)));
      return {{out_dtype(call, a.dtype), {experts, row_length(a), row_length(b)}, {}}};
    },
    .cost =
        [](const Call& call) {
          return grouped_cost(call, call.type("a"), row_length(call.type("b")),
                              call.results.at(0).bytes());
        },
    .sharding = "gdRm, gdRn, gdQ -> dmn",
    .samples =
        "a: f32[1,1,12,5], b: f32[1,1,12,7], offsets: i32[1,1,5] | "
        "a: f32[2,2,6,5], b: f32[2,2,6,3], offsets: i32[2,2,3] | "
        "a: bf16[1,2,7,8], b: bf16[1,2,7,6], offsets: i32[1,2,3]; out=\"f32\" | "
        "a: f32[3,1,200,67], b: f32[3,1,200,131], offsets: i32[3,1,9]",
};

constinit const OpDef kWeightedSwiglu{
    .signature = "weighted_swiglu(x, offsets, w; fill = 1.0) -> y",
    .doc =
        "swiglu of the rows below the offsets, times one weight w per row. The weights are applied "
        "here and not to the outputs of experts, so that their gradient does not need the outputs.",
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_gates(call);
      const TensorType& x = call.type("x");
      return {{x.dtype, append_dim(leading_dims(x), row_length(x) / 2), {}}};
    },
    .vjp = vjp_weighted_swiglu,
    .cost = [](const Call& call) { return filled_cost(call, 5); },
    .sharding_of = [](const Call& call) { return cat("gdR", halves(call), ", gdQ, gdR -> gdRf"); },
    .samples =
        "x: f32[1,1,12,10], offsets: i32[1,1,5], w: f32[1,1,12] | "
        "x: f32[2,2,6,8], offsets: i32[2,2,3], w: f32[2,2,6] | "
        "x: bf16[1,2,7,6], offsets: i32[1,2,3], w: f32[1,2,7] | "
        "x: f32[1,1,300,134], offsets: i32[1,1,9], w: f32[1,1,300]",
};

constinit const OpDef kWeightedSwigluGrad{
    .signature = "weighted_swiglu_grad(dy, x, offsets, w; fill = 1.0) -> dx, dw",
    .doc = "Gradient of weighted_swiglu.",
    .traits = {.differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_gates(call);
      const TensorType& x = call.type("x");
      require_type(call, "dy", x.dtype, append_dim(leading_dims(x), row_length(x) / 2));
      return {x, call.type("w")};
    },
    .cost = [](const Call& call) { return filled_cost(call, 7); },
    .sharding_of =
        [](const Call& call) {
          return cat("gdRf, gdR", halves(call), ", gdQ, gdR -> gdR", halves(call), ", gdR");
        },
    .samples =
        "dy: f32[1,1,12,5], x: f32[1,1,12,10], offsets: i32[1,1,5], w: f32[1,1,12] | "
        "dy: f32[2,2,6,4], x: f32[2,2,6,8], offsets: i32[2,2,3], w: f32[2,2,6] | "
        "dy: bf16[1,2,7,3], x: bf16[1,2,7,6], offsets: i32[1,2,3], w: f32[1,2,7] | "
        "dy: f32[1,1,300,67], x: f32[1,1,300,134], offsets: i32[1,1,9], w: f32[1,1,300]",
};

constinit const OpDef kScaleRows{
    .signature = "scale_rows(x, w) -> y",
    .doc = "y = x * w, with one weight w [...,1] per row of x [...,c].",
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_row_weights(call);
      return {call.type("x")};
    },
    .vjp = vjp_scale_rows,
    .cost = [](const Call& call) { return per_element(call, 1); },
    .sharding = "...c, ...U -> ...c",
    .samples =
        "x: f32[2,3,5], w: f32[2,3,1] | x: bf16[2,4,6], w: f32[2,4,1] | "
        "x: f32[3,67,131], w: f32[3,67,1]",
};

constinit const OpDef kScaleRowsGrad{
    .signature = "scale_rows_grad(dy, x, w) -> dx, dw",
    .doc =
        "Gradient of scale_rows: dx = dy * w, and dw is the dot product of each row of dy and x.",
    .traits = {.differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_row_weights(call);
      const TensorType& x = call.type("x");
      require_type(call, "dy", x.dtype, x.shape);
      return {x, call.type("w")};
    },
    .cost = [](const Call& call) { return per_element(call, 3); },
    .sharding = "...c, ...c, ...U -> ...c, ...U",
    .samples =
        "dy: f32[2,3,5], x: f32[2,3,5], w: f32[2,3,1] | "
        "dy: bf16[2,4,6], x: bf16[2,4,6], w: f32[2,4,1] | "
        "dy: f32[3,67,131], x: f32[3,67,131], w: f32[3,67,1]",
};

}  // namespace weft

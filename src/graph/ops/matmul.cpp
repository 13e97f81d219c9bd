// Matmul, its bias when that is added later, and the sum over rows that bias gradients need.
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

// a [...,m] and b [...,n] contracted over all rows.
std::vector<TensorType> infer_transposed(const Call& call, DType dtype) {
  call.require(!call.bool_attr("tb"), "tb is true, expected false with ta=true");
  call.require(!call.has_operand("bias"), "ta=true takes no bias");
  require_floating(call, "b", 2);
  const TensorType& a = call.type("a");
  const TensorType& b = call.type("b");
  require_type(call, "b", a.dtype, append_dim(leading_dims(a), row_length(b)));
  return {{dtype, {row_length(a), row_length(b)}, {}}};
}

std::vector<TensorType> infer_matmul(const Call& call) {
  require_floating(call, "a", 2);
  const TensorType& a = call.type("a");
  const TensorType& b = call.type("b");
  const DType dtype = out_dtype(call, a.dtype);
  if (call.bool_attr("ta")) return infer_transposed(call, dtype);
  call.require(b.shape.size() == 2, "b is ", b, ", expected two dims");
  const bool tb = call.bool_attr("tb");
  const int64_t k = row_length(a);
  const int64_t n = b.shape[tb ? 0 : 1];
  require_type(call, "b", a.dtype, tb ? Shape{n, k} : Shape{k, n});
  if (call.has_operand("bias")) require_type(call, "bias", a.dtype, {n});
  return {{dtype, append_dim(leading_dims(a), n), {}}};
}

std::vector<Value*> vjp_matmul(Vjp& v) {
  CHECK(!std::get<bool>(v.attr("ta")), "matmul: no gradient with ta=true");
  Value* a = v.operand("a");
  Value* b = v.operand("b");
  Value* dy = only_grad(v);
  const DType dtype = a->type.dtype;
  if (dy->type.dtype != dtype) dy = v.add(kCast, {dy}, {{"dtype", dtype}}, "a")->result();
  const bool tb = std::get<bool>(v.attr("tb"));
  std::vector<Value*> grads;
  grads.push_back(v.add(kMatmul, {dy, b}, {{"tb", !tb}}, "a")->result());
  const std::vector<Value*> factors = tb ? std::vector{dy, a} : std::vector{a, dy};
  grads.push_back(
      v.add(kMatmul, factors, {{"ta", true}, {"out", grad_out(v, "b", dtype)}}, "b")->result());
  if (v.operand("bias") != nullptr) {
    grads.push_back(v.add(kSumRows, {dy}, {{"out", grad_out(v, "bias", dtype)}}, "bias")->result());
  }
  return grads;
}

Cost cost_matmul(const Call& call) {
  const TensorType& a = call.type("a");
  const int64_t contracted = call.bool_attr("ta") ? row_count(a) : row_length(a);
  return per_element(call, 2 * static_cast<double>(contracted));
}

// Every rank adds the bias, so with a bias the contracted dim must not be sharded.
std::string sharding_of_matmul(const Call& call) {
  if (call.bool_attr("ta")) return "...m, ...n -> mn";
  const bool tb = call.bool_attr("tb");
  if (call.has_operand("bias")) return tb ? "...K, nK, n -> ...n" : "...K, Kn, n -> ...n";
  return tb ? "...k, nk -> ...n" : "...k, kn -> ...n";
}

}  // namespace

constinit const OpDef kMatmul{
    .signature = "matmul(a, b, bias?; ta = false, tb = false, out = \"\") -> y",
    .doc =
        "y = a b (+ bias): a [...,k], b [k,n] ([n,k] with tb) to [...,n]. With ta: a [...,m] and b "
        "[...,n] to [m,n], contracted over all rows. `out` names the dtype of y, which is rounded "
        "once from the accumulator; if it is empty, y has the dtype of a.",
    .traits = {.matmul = true, .bilinear = true},
    .infer = infer_matmul,
    .vjp = vjp_matmul,
    .cost = cost_matmul,
    .sharding_of = sharding_of_matmul,
    .samples =
        "a: f32[2,3,5], b: f32[5,7], bias: f32[7] | a: f32[3,5], b: f32[7,5]; tb=true | "
        "a: f32[2,3,5], b: f32[2,3,7]; ta=true | "
        "a: f32[33,17], b: f32[19,17], bias: f32[19]; tb=true | "
        "a: bf16[9,17], b: bf16[17,5] | a: bf16[11,6], b: bf16[11,3]; ta=true, out=\"f32\" | "
        "a: f32[2,67,131], b: f32[131,259], bias: f32[259] | a: f32[131,67], b: f32[259,67]; "
        "tb=true | a: f32[2,259,67], b: f32[2,259,131]; ta=true | a: bf16[70,131], b: "
        "bf16[67,131]; tb=true",
};

constinit const OpDef kAddBias{
    .signature = "add_bias(x, b) -> y",
    .doc =
        "y = x + b in every row: the bias of a matmul whose result had to be summed over ranks "
        "first; created by `place`.",
    .traits = {.in_place = true, .differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_floating(call, "x", 1);
      const TensorType& x = call.type("x");
      require_type(call, "b", x.dtype, {row_length(x)});
      return {x};
    },
    .cost = [](const Call& call) { return per_element(call, 1); },
    .sharding = "...n, n -> ...n",
    .samples =
        "x: f32[2,3,5], b: f32[5] | x: f32[7], b: f32[7] | x: bf16[9,6], b: bf16[6] | "
        "x: f32[3,131,67], b: f32[67]",
};

constinit const OpDef kSumRows{
    .signature = "sum_rows(x; out = \"\") -> y",
    .doc = "y[n] = sum of x [...,n] over all rows, in an order that depends on the shape alone.",
    .traits = {.differentiable = false, .linear = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_floating(call, "x", 2);
      const TensorType& x = call.type("x");
      return {{out_dtype(call, x.dtype), {row_length(x)}, {}}};
    },
    .cost = [](const Call& call) { return per_operand_element(call, "x", 1); },
    .sharding = "...n -> n",
    .samples =
        "x: f32[2,3,5] | x: f32[67,9] | x: bf16[13,4]; out=\"f32\" | x: bf16[3,5] | "
        "x: f32[1031,67]",
};

}  // namespace weft

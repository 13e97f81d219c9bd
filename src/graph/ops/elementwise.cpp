// Ops whose result element i depends on element i of the operands (dropout also on its position).
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

// Two floating operands of the same type.
std::vector<TensorType> infer_pair(const Call& call) {
  require_floating(call, 0);
  require_type(call, 1, call.type(0).dtype, call.type(0).shape);
  return {call.type(0)};
}

std::vector<TensorType> infer_cast(const Call& call) {
  require_floating(call, 0);
  const DType dtype = call.dtype_attr("dtype");
  call.require(is_floating(dtype), "dtype is ", dtype_name(dtype), ", expected a floating dtype");
  if (!call.text_attr("grad").empty()) {
    call.require(is_floating(parse_dtype(call.text_attr("grad"))), "grad is \"",
                 call.text_attr("grad"), "\", expected a floating dtype");
  }
  TensorType result = call.type(0);
  result.dtype = dtype;
  return {result};
}

std::vector<TensorType> infer_dropout(const Call& call) {
  require_floating(call, "x", 1);
  require_rng(call);
  const double rate = call.double_attr("rate");
  call.require(rate >= 0 && rate < 1, "rate is ", format_double(rate), ", expected 0 <= rate < 1");
  return {call.type(0)};
}

// Random numbers are keyed by the sample, which is dim 0, and by the shard of dim 1, whose elements
// are contiguous in a sample; those of other dims are not, so these must not be sharded.
std::string sharding_by_sample(const Call& call) {
  std::vector<std::string> operands;
  std::string result;
  for (const TensorType& type : call.operands) {
    std::string dims = "bsUVWXYZ";
    call.require(type.shape.size() <= dims.size(), "more dims than a sharding rule can name");
    dims.resize(type.shape.size());
    if (is_floating(type.dtype)) result = dims;
    operands.push_back(is_floating(type.dtype) ? dims : "R");
  }
  return cat(join(operands, ", "), " -> ", result);
}

}  // namespace

constinit const OpDef kAdd{
    .signature = "add(a, b) -> y",
    .doc = "y = a + b.",
    .traits = {.elementwise = true, .linear = true},
    .infer = infer_pair,
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      return {only_grad(v), only_grad(v)};
    },
    .cost = [](const Call& call) { return per_element(call, 1); },
    .sharding = "..., ... -> ...",
    .samples =
        "a: f32[3,7], b: f32[3,7] | a: f32[], b: f32[] | a: bf16[2,5,3], b: bf16[2,5,3] | "
        "a: f32[41,1031], b: f32[41,1031]",
};

constinit const OpDef kCast{
    .signature = "cast(x; dtype: dtype, grad = \"\") -> y",
    .doc =
        "x rounded to another floating dtype, to nearest even. `grad` names the dtype of the "
        "gradient of x; if it is empty, that is the dtype of x.",
    .traits = {.elementwise = true, .linear = true},
    .infer = infer_cast,
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      Value* dy = only_grad(v);
      const auto& wanted = std::get<std::string>(v.attr("grad"));
      const DType dtype = wanted.empty() ? v.operand("x")->type.dtype : parse_dtype(wanted);
      if (dy->type.dtype == dtype) return {dy};
      return {v.add(kCast, {dy}, {{"dtype", dtype}}, "x")->result()};
    },
    .cost = [](const Call& call) { return per_element(call, 1); },
    .sharding = "... -> ...",
    .samples =
        "x: f32[3,7]; dtype=bf16 | x: bf16[5]; dtype=f32 | x: f32[4,3]; dtype=f16 | "
        "x: f32[9]; dtype=bf16, grad=\"f32\" | "
        "x: f32[41,1031]; dtype=bf16 | x: f16[5,3]; dtype=bf16",
};

constinit const OpDef kGelu{
    .signature = "gelu(x) -> y",
    .doc = "y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))).",
    .traits = {.elementwise = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_floating(call, 0);
      return {call.type(0)};
    },
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      return {v.add(kGeluGrad, {only_grad(v), v.operand("x")}, {}, "x")->result()};
    },
    .cost = [](const Call& call) { return per_element(call, 12); },
    .sharding = "... -> ...",
    .samples =
        "x: f32[3,7] | x: bf16[2,9] | "
        "x: f32[41,1031]",
};

constinit const OpDef kGeluGrad{
    .signature = "gelu_grad(dy, x) -> dx",
    .doc = "Gradient of gelu.",
    .traits = {.elementwise = true, .differentiable = false},
    .infer = infer_pair,
    .cost = [](const Call& call) { return per_element(call, 20); },
    .sharding = "..., ... -> ...",
    .samples =
        "dy: f32[3,7], x: f32[3,7] | dy: bf16[2,9], x: bf16[2,9] | "
        "dy: f32[41,1031], x: f32[41,1031]",
};

constinit const OpDef kDropout{
    .signature = "dropout(x, rng; rate: float, stream: int) -> y",
    .doc =
        "Zeroes each element with probability `rate` and scales the others by 1/(1-rate). rng is "
        "{seed low, seed high, step, first sample}; the random number of an element depends on "
        "these, on `stream` and on its index in the global batch (dim 0 is the sample). If dim 1 "
        "is sharded, rng also says which shard x is, see `shard_rng`.",
    .traits = {.elementwise = true, .linear = true},
    .infer = infer_dropout,
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      Node* dx = v.add(kDropout, {only_grad(v), v.operand("rng")},
                       {{"rate", v.attr("rate")}, {"stream", v.attr("stream")}}, "x");
      return {dx->result(), nullptr};
    },
    .cost = [](const Call& call) { return per_element(call, 20); },
    .sharding_of = [](const Call& call) { return sharding_by_sample(call); },
    .located = 's',
    .samples =
        "x: f32[3,5,7], rng: i32[4]; rate=0.3, stream=7 | "
        "x: f32[4,9], rng: i32[4]; rate=0.0, stream=-1 | "
        "x: bf16[2,33], rng: i32[4]; rate=0.5, stream=123456789012 | "
        "x: f32[5,8219], rng: i32[4]; rate=0.2, stream=3 | "
        "x: f32[3,5,7], rng: i32[6]; rate=0.3, stream=7 | "
        "x: bf16[2,33], rng: i32[6]; rate=0.5, stream=9 | "
        "x: f32[5,8219], rng: i32[6]; rate=0.2, stream=3 | "
        "x: f32[3,6,7], rng: i32[8]; rate=0.3, stream=7 | "
        "x: f32[5,8220], rng: i32[8]; rate=0.2, stream=3",
};

constinit const OpDef kShardRng{
    .signature = "shard_rng(rng, coordinate; shards: int, head_tail = false) -> sharded",
    .doc =
        "The random state of a rank whose tensors hold shard `coordinate` of `shards` equal shards "
        "of dim 1: {seed low, seed high, step, first sample, coordinate, shards}. With it an "
        "element of a shard has the random number that it has in the full tensor. With `head_tail` "
        "these are shards over cp, which a further shard_rng may divide: {..., 0, 1, coordinate, "
        "shards}.",
    .traits = {.differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const bool head_tail = call.bool_attr("head_tail");
      const bool inside = !head_tail && call.type("rng").shape == Shape{8};
      require_type(call, "rng", DType::I32, {inside ? 8 : 4});
      require_type(call, "coordinate", DType::I32, {});
      const int64_t shards = call.int_attr("shards");
      call.require(shards > 0, "shards is ", shards, ", expected a positive number");
      return {{DType::I32, {head_tail || inside ? 8 : 6}, {}}};
    },
    .sharding = "R, -> W",
    .samples =
        "rng: i32[4], coordinate: i32[]; shards=3 | "
        "rng: i32[4], coordinate: i32[]; shards=3, head_tail=true | "
        "rng: i32[8], coordinate: i32[]; shards=3",
};

}  // namespace weft

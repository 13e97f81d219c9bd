// Rotary positions, and queries scaled by position.
#include "graph/dims.h"
#include "graph/ops/attention_rules.h"
#include "graph/ops/ops.h"

namespace weft {
namespace {

// Checks x [batch,time,width] and its first `heads` heads.
void require_first_heads(const Call& call) {
  const TensorType& x = call.type("x");
  const int64_t heads = call.int_attr("heads"), head_dim = call.int_attr("head_dim");
  call.require(is_floating(x.dtype) && x.shape.size() == 3, "x is ", x,
               ", expected floating [batch,time,width]");
  call.require(heads > 0 && head_dim > 0, "heads is ", heads, " and head_dim is ", head_dim,
               ", expected positive numbers");
  call.require(heads <= x.shape[2] / head_dim, heads, " heads of ", head_dim,
               " do not fit the width of x, ", x.shape[2]);
  if (call.has_operand("positions")) require_positions(call, x);
}

std::vector<TensorType> infer_rope(const Call& call) {
  require_first_heads(call);
  const int64_t head_dim = call.int_attr("head_dim"), part = call.int_attr("rotary_dim");
  call.require(part >= 0 && part <= head_dim && (part > 0 ? part : head_dim) % 2 == 0,
               "head_dim is ", head_dim, " and rotary_dim is ", part,
               ", expected to rotate an even number of a head's elements");
  call.require(call.double_attr("theta") > 0, "theta is ", format_double(call.double_attr("theta")),
               ", expected a positive number");
  return {call.type("x")};
}

std::vector<Value*> vjp_rope(Vjp& v) {
  std::vector<Value*> operands = v.node().operands;
  operands[0] = only_grad(v);
  Node* node = v.add(kRope, operands,
                     {{"heads", v.attr("heads")},
                      {"head_dim", v.attr("head_dim")},
                      {"rotary_dim", v.attr("rotary_dim")},
                      {"interleaved", v.attr("interleaved")},
                      {"theta", v.attr("theta")},
                      {"factor", v.attr("factor")},
                      {"low_freq_factor", v.attr("low_freq_factor")},
                      {"high_freq_factor", v.attr("high_freq_factor")},
                      {"original_max_position", v.attr("original_max_position")},
                      {"yarn", v.attr("yarn")},
                      {"truncate", v.attr("truncate")},
                      {"magnitude", v.attr("magnitude")},
                      {"length", v.attr("length")},
                      {"inverse", !std::get<bool>(v.attr("inverse"))}},
                     "x");
  std::vector<Value*> grads(operands.size(), nullptr);
  grads[0] = node->result();
  return grads;
}

// Positions may be those of a longer sequence, of which x is a shard.
void localize_rope(const Call& call, Call& local) {
  localize_heads(call, local);
  const int64_t time = call.type("x").shape[1];
  if (local.type("x").shape[1] == time || call.int_attr("length") > 0) return;
  local.attrs.at(call.op->parsed().attr_index("length")) = time;
}

// The first heads and the rest are sharded alike; rows only if their positions are given.
std::string by_first_heads(const Call& call) {
  const int64_t first = call.int_attr("heads") * call.int_attr("head_dim");
  const int64_t rest = row_length(call.type("x")) - first;
  const std::string dim =
      dims::packed("h", rest == 0 ? std::vector{first} : std::vector{first, rest});
  const std::string_view rows = call.has_operand("positions") ? "bs" : "bT";
  return cat(rows, dim, ", ", rows, " -> ", rows, dim);
}

}  // namespace

constinit const OpDef kRope{
    .signature =
        "rope(x, positions?; heads: int, head_dim: int, rotary_dim = 0, interleaved = false, "
        "theta = 10000.0, factor = 0.0, low_freq_factor = 1.0, high_freq_factor = 4.0, "
        "original_max_position = 8192, yarn = false, truncate = true, magnitude = 1.0, "
        "length = 0, inverse = false) -> y",
    .doc =
        "Rotary positions: the last `rotary_dim` elements (0: all) of the first `heads` heads of x "
        "[batch,time,width] are rotated by position, the rest are copied. Pairs are half of the "
        "rotated elements apart, or neighbours if `interleaved`. Row t is at position t, or at the "
        "one given by `positions` [batch,time], which are below `length`, or below time if that is "
        "0. A positive factor divides the frequencies that turn less than low_freq_factor times in "
        "original_max_position, and keeps those that turn more than high_freq_factor times; "
        "between them it blends by frequency as Llama 3.1 does, or with `yarn` by index, from and "
        "to a full index if `truncate`. The result is multiplied by `magnitude`; `inverse` rotates "
        "back, which is the gradient.",
    .traits = {.linear = true},
    .infer = infer_rope,
    .vjp = vjp_rope,
    .cost = [](const Call& call) { return per_element(call, 3); },
    .sharding_of = by_first_heads,
    .localize = localize_rope,
    .samples =
        "x: f32[2,5,24]; heads=4, head_dim=4 | "
        "x: f32[1,7,16]; heads=2, head_dim=8, inverse=true | "
        "x: f32[2,3,64]; heads=1, head_dim=64, theta=500000.0, factor=8.0, "
        "original_max_position=32 | x: bf16[1,9,8]; heads=1, head_dim=8 | "
        "x: f32[2,9,24], positions: i32[2,9]; heads=2, head_dim=8 | "
        "x: f32[2,9,24], positions: i32[2,9]; heads=2, head_dim=8, length=36 | "
        "x: f32[2,131,96]; heads=5, head_dim=16 | "
        "x: f32[2,9,30]; heads=2, head_dim=10, rotary_dim=4, interleaved=true, magnitude=1.25 | "
        "x: bf16[1,9,30], positions: i32[1,9]; heads=2, head_dim=12, interleaved=true, "
        "inverse=true "
        "| x: f32[2,9,64]; heads=1, head_dim=64, factor=40.0, high_freq_factor=32.0, "
        "original_max_position=64, yarn=true, magnitude=1.1 | x: f32[2,131,96]; heads=2, "
        "head_dim=32, rotary_dim=16, interleaved=true, factor=4.0, high_freq_factor=2.0, "
        "original_max_position=64, yarn=true, truncate=false | "
        "x: f32[2,9,64]; heads=1, head_dim=64, theta=500000.0, factor=16.0, high_freq_factor=1.0, "
        "original_max_position=32",
};

constinit const OpDef kScaleQueries{
    .signature =
        "scale_queries(x, positions?; heads: int, head_dim: int, scale: float, floor: int) -> y",
    .doc =
        "The first `heads` heads of x [batch,time,width] are multiplied by 1 + scale ln(1 + "
        "floor((p + 1) / `floor`)), where p is the position of the row as in rope; the rest are "
        "copied. It is its own gradient.",
    .traits = {.linear = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_first_heads(call);
      call.require(call.int_attr("floor") > 0, "floor is ", call.int_attr("floor"),
                   ", expected a positive number");
      return {call.type("x")};
    },
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      std::vector<Value*> operands = v.node().operands;
      operands[0] = only_grad(v);
      std::vector<Value*> grads(operands.size(), nullptr);
      grads[0] = v.add(kScaleQueries, operands,
                       {{"heads", v.attr("heads")},
                        {"head_dim", v.attr("head_dim")},
                        {"scale", v.attr("scale")},
                        {"floor", v.attr("floor")}},
                       "x")
                     ->result();
      return grads;
    },
    .cost = [](const Call& call) { return per_element(call, 1); },
    .sharding_of = by_first_heads,
    .localize = localize_heads,
    .samples =
        "x: f32[2,9,24]; heads=2, head_dim=4, scale=0.1, floor=4 | "
        "x: f32[2,9,16], positions: i32[2,9]; heads=2, head_dim=8, scale=0.5, floor=2 | "
        "x: bf16[1,9,24]; heads=1, head_dim=8, scale=0.1, floor=3 | "
        "x: f32[2,131,96]; heads=4, head_dim=16, scale=0.1, floor=16",
};

}  // namespace weft

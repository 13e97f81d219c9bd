// Shape helpers shared by the op definitions.
#pragma once

#include <string>

#include "graph/builder.h"
#include "graph/op.h"

namespace weft {

// All dims but the last.
inline Shape leading_dims(const TensorType& type) {
  return type.shape.empty() ? Shape{} : Shape(type.shape.begin(), type.shape.end() - 1);
}

// `dims` with one more dim at the end.
inline Shape append_dim(Shape dims, int64_t last) {
  dims.push_back(last);
  return dims;
}

// The dtype of statistics kept along with a tensor (mean, rstd, lse): f64 for f64, else f32.
inline DType stat_dtype(const TensorType& type) {
  return type.dtype == DType::F64 ? DType::F64 : DType::F32;
}

// Statistics of that dtype.
inline TensorType statistics(const TensorType& type, Shape shape) {
  return {stat_dtype(type), std::move(shape), {}};
}

// The dtype named by the attribute `out`, or `fallback` if that is empty.
inline DType out_dtype(const Call& call, DType fallback) {
  const std::string& out = call.text_attr("out");
  if (out.empty()) return fallback;
  const DType dtype = parse_dtype(out);
  call.require(is_floating(dtype), "out is \"", out, "\", expected a floating dtype");
  return dtype;
}

inline const std::string& operand_name(const Call& call, size_t operand) {
  const auto& specs = call.op->parsed().operands;
  return specs.at(operand < specs.size() ? operand : specs.size() - 1).name;
}

// Throws unless operand `i` has exactly this dtype and shape.
inline void require_type(const Call& call, size_t i, DType dtype, const Shape& shape) {
  const TensorType& type = call.type(i);
  call.require(type.dtype == dtype && type.shape == shape, operand_name(call, i), " is ", type,
               ", expected ", TensorType{dtype, shape, {}});
}

// Throws unless operand `i` is floating and has this shape.
inline void require_floating(const Call& call, size_t i, const Shape& shape) {
  const TensorType& type = call.type(i);
  if (is_floating(type.dtype) && type.shape == shape) return;
  call.refuse(cat(operand_name(call, i), " is ", type, ", expected floating ", to_string(shape)));
}

// Throws unless operand `i` is floating and has at least `rank` dims, the last of which is not
// empty.
inline void require_floating(const Call& call, size_t i, size_t rank = 0) {
  const TensorType& type = call.type(i);
  call.require(is_floating(type.dtype) && type.shape.size() >= rank && row_length(type) > 0,
               operand_name(call, i), " is ", type, ", expected floating with ", rank,
               " or more dims");
}

// The same checks for an operand given by its name in the signature.
inline void require_type(const Call& call, std::string_view operand, DType dtype,
                         const Shape& shape) {
  require_type(call, call.op->parsed().operand_index(operand), dtype, shape);
}
inline void require_floating(const Call& call, std::string_view operand, const Shape& shape) {
  require_floating(call, call.op->parsed().operand_index(operand), shape);
}
inline void require_floating(const Call& call, std::string_view operand, size_t rank = 0) {
  require_floating(call, call.op->parsed().operand_index(operand), rank);
}

// Throws unless operand `rng` is the random state {seed low, seed high, step, first sample}. Six
// words also have {shard, shards}, eight words {shard, shards} over cp as well; see shard_rng.
inline void require_rng(const Call& call) {
  const TensorType& rng = call.type("rng");
  const bool known = rng.shape == Shape{4} || rng.shape == Shape{6} || rng.shape == Shape{8};
  call.require(rng.dtype == DType::I32 && known, "rng is ", rng,
               ", expected i32[4], i32[6] or i32[8]");
}

// `flops` per element of the first result, at the vector rate.
inline Cost per_element(const Call& call, double flops) {
  return {.flops = flops * static_cast<double>(call.results.at(0).elements())};
}

// `flops` per element of an operand.
inline Cost per_operand_element(const Call& call, std::string_view operand, double flops) {
  return {.flops = flops * static_cast<double>(call.type(operand).elements())};
}

// The gradient of the first result; no op lets gradients flow through its statistics.
inline Value* only_grad(const Vjp& vjp) {
  Value* grad = vjp.grad(0);
  CHECK(grad != nullptr, vjp.node().op->name(), ": gradient of a result other than the first");
  for (size_t i = 1; i < vjp.node().results.size(); ++i) {
    CHECK(vjp.grad(i) == nullptr, vjp.node().op->name(), ": gradient of result ", i);
  }
  return grad;
}

// The attribute `out` for the gradient dtype of operand `of`; "" if that is `fallback`.
inline std::string grad_out(const Vjp& vjp, std::string_view of, DType fallback) {
  const DType wanted = vjp.grad_dtype(of);
  return wanted == fallback ? "" : std::string(dtype_name(wanted));
}

}  // namespace weft

#include "runtime/cpu/elements.h"

#include "base/error.h"
#include "runtime/cpu/simd.h"
#include "runtime/cpu/thread_team.h"

namespace weft {

namespace {

WEFT_CLONES void load_bf16(const uint16_t* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = f32_from_bf16(from[i]);
}

void load_f16(const uint16_t* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = f32_from_f16(from[i]);
}

WEFT_CLONES void store_bf16(const float* from, int64_t n, uint16_t* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = bf16_from_f32(from[i]);
}

void store_f16(const float* from, int64_t n, uint16_t* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = f16_from_f32(from[i]);
}

WEFT_CLONES void round_bf16(int64_t n, float* values) {
  for (int64_t i = 0; i < n; ++i) values[i] = f32_from_bf16(bf16_from_f32(values[i]));
}

}  // namespace

const float* load(const Tensor& tensor, int64_t offset, int64_t n, float* buffer) {
  switch (tensor.dtype) {
    case DType::F32:
      return tensor.as<float>() + offset;
    case DType::BF16:
      load_bf16(tensor.as<uint16_t>() + offset, n, buffer);
      return buffer;
    case DType::F16:
      load_f16(tensor.as<uint16_t>() + offset, n, buffer);
      return buffer;
    default:
      CHECK(false, "a cpu kernel met ", dtype_name(tensor.dtype));
  }
}

float* place(const Tensor& tensor, int64_t offset, float* buffer) {
  return tensor.dtype == DType::F32 ? tensor.as<float>() + offset : buffer;
}

void store(const Tensor& tensor, int64_t offset, int64_t n, const float* computed) {
  if (tensor.dtype == DType::BF16) store_bf16(computed, n, tensor.as<uint16_t>() + offset);
  if (tensor.dtype == DType::F16) store_f16(computed, n, tensor.as<uint16_t>() + offset);
}

void round_to(DType dtype, int64_t n, float* values) {
  if (dtype == DType::BF16) round_bf16(n, values);
  if (dtype == DType::F16) {
    for (int64_t i = 0; i < n; ++i) values[i] = f32_from_f16(f16_from_f32(values[i]));
  }
}

Decision supports_cpu_dtypes(const Call& call) {
  for (const auto* types : {&call.operands, &call.results}) {
    for (const TensorType& type : *types) {
      if (type.dtype == DType::F64) {
        return Decision::no(cat("takes f32, bf16 and f16, found ", to_string(type)));
      }
    }
  }
  return Decision::yes();
}

Decision supports_rows(const Call& call, const TensorType& type, int64_t rows) {
  Decision decision = supports_cpu_dtypes(call);
  const int64_t limit = ThreadTeam::kScratchFloats / rows;
  if (decision.allowed && type.dtype != DType::F32 && row_length(type.shape) > limit) {
    return Decision::no(cat("takes rows of up to ", limit, " elements, found ", to_string(type)));
  }
  return decision;
}

}  // namespace weft

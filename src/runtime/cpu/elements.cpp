#include "runtime/cpu/elements.h"

#include "base/error.h"
#include "base/tree_level.h"
#include "runtime/cpu/simd.h"
#include "runtime/cpu/thread_team.h"

namespace weft {

namespace {

WEFT_CLONES void load_bf16(const uint16_t* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = f32_from_bf16(from[i]);
}

// The two conversions of base/half.h without branches, so that loops over them vectorize.
[[gnu::always_inline]] inline float widened(uint16_t half) {
  const uint32_t size = static_cast<uint32_t>(half & 0x7fff) << 13;
  // The factor rebiases the exponent, also for subnormals.
  const uint32_t finite = bits_from_f32(f32_from_bits(size) * 0x1p112f);
  const uint32_t bits = size >= (0x7c00u << 13) ? 0x7f800000u | size : finite;
  return f32_from_bits(bits | static_cast<uint32_t>(half & 0x8000) << 16);
}

[[gnu::always_inline]] inline uint16_t narrowed(float value) {
  constexpr uint32_t kMin = 113u << 23;  // 2^-14, where subnormals begin
  const uint32_t size = bits_from_f32(value) & 0x7fffffff;
  const uint32_t exponent = (size & 0x7f800000) > kMin ? size & 0x7f800000 : kMin;
  // Added to a number 2^13 times as large, the last place is that of the f16.
  const uint32_t large = exponent + (13u << 23);
  const uint32_t units = bits_from_f32(f32_from_bits(size) + f32_from_bits(large)) - large;
  const uint32_t finite = ((exponent - kMin) >> 13) + units;
  const uint32_t payload = (size >> 13) & 0x3ff;
  const uint32_t nan = 0x7c00 | (payload != 0 ? payload : 0x200);
  const uint32_t rest = size > 0x7f800000 ? nan : 0x7c00;
  const uint32_t bits = size < 0x47800000 ? finite : rest;  // below 65536
  return static_cast<uint16_t>(bits | ((bits_from_f32(value) >> 16) & 0x8000));
}

WEFT_CLONES void load_f16(const uint16_t* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = widened(from[i]);
}

WEFT_CLONES void store_bf16(const float* from, int64_t n, uint16_t* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = bf16_from_f32(from[i]);
}

WEFT_CLONES void store_f16(const float* from, int64_t n, uint16_t* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = narrowed(from[i]);
}

WEFT_CLONES void round_bf16(int64_t n, float* values) {
  for (int64_t i = 0; i < n; ++i) values[i] = f32_from_bf16(bf16_from_f32(values[i]));
}

WEFT_CLONES void round_f16(int64_t n, float* values) {
  for (int64_t i = 0; i < n; ++i) values[i] = widened(narrowed(values[i]));
}

}  // namespace

WEFT_CLONES void add_rows(const float* a, const float* b, int64_t n, float* sum) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
}

WEFT_CLONES float dot_rows(const float* a, const float* b, int64_t n) {
  return lane_sum(
      n, [&](int64_t i) { return lanes_at(a + i) * lanes_at(b + i); },
      [&](int64_t i) { return a[i] * b[i]; });
}

float tree_sum(const float* x, int64_t n) {
  if (n == 0) return 0;
  if (n == 1) return x[0];
  const int64_t half = tree_split(n);
  return tree_sum(x, half) + tree_sum(x + half, n - half);
}

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
      CHECK(false, "no cpu kernel for ", dtype_name(tensor.dtype));
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
  if (dtype == DType::F16) round_f16(n, values);
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

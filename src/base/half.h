// bf16 and f16 as bit patterns in uint16_t, converted from and to f32: round to nearest, ties to
// even, infinities and signed zeros exact, NaN stays NaN with the upper bits of its payload.
// Integer code only, the same on host and device.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace weft {

// The bits of a float.
WEFT_HOST_DEVICE inline uint32_t bits_from_f32(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

// The float with these bits.
WEFT_HOST_DEVICE inline float f32_from_bits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// bf16 to f32, exact.
WEFT_HOST_DEVICE inline float f32_from_bf16(uint16_t half) {
  return f32_from_bits(static_cast<uint32_t>(half) << 16);
}

// f32 to bf16.
WEFT_HOST_DEVICE inline uint16_t bf16_from_f32(float value) {
  const uint32_t bits = bits_from_f32(value);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    const uint32_t kept = bits >> 16;
    // A payload only in the lower bits would turn into an infinity.
    return static_cast<uint16_t>((kept & 0x7f) != 0 ? kept : kept | 0x40);
  }
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// f16 to f32, exact.
WEFT_HOST_DEVICE inline float f32_from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0x1f) return f32_from_bits(sign | 0x7f800000 | (mantissa << 13));
  if (exponent != 0) return f32_from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Zero or subnormal: mantissa * 2^-24 is a normal float.
  const float size = static_cast<float>(mantissa) * 0x1p-24f;
  return f32_from_bits(sign | bits_from_f32(size));
}

// f32 to f16; values beyond 65504 + half a unit become infinity.
WEFT_HOST_DEVICE inline uint16_t f16_from_f32(float value) {
  const uint32_t bits = bits_from_f32(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000) {
    const uint32_t payload = (size >> 13) & 0x3ff;
    return static_cast<uint16_t>(sign | 0x7c00 | (payload != 0 ? payload : 0x200));
  }
  if (size >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);  // 65536 and above
  if (size >= 0x38800000) {
    // Normal: a carry out of the mantissa correctly increments the exponent.
    const uint32_t rounded = size - (112u << 23) + 0xfff + ((size >> 13) & 1);
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
  if (size < 0x33000000) return static_cast<uint16_t>(sign);  // below half the smallest subnormal
  const uint32_t mantissa = (size & 0x7fffff) | 0x800000;
  const uint32_t shift = 126 - (size >> 23);  // 14 .. 24
  const uint32_t kept = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  const uint32_t tie = 1u << (shift - 1);
  const bool up = rest > tie || (rest == tie && (kept & 1) != 0);
  return static_cast<uint16_t>(sign | (kept + (up ? 1 : 0)));
}

}  // namespace weft

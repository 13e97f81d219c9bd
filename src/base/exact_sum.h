// Exact sums of non-negative f32 values. A sum is an integer in 32-bit limbs, each stored in a
// 64-bit word, so that partial sums can be added in any order and 2^31 additions cannot overflow.
// Limb k counts 2^(32 k - 160). The last word counts values that are not finite.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/half.h"

namespace weft {

inline constexpr int kExactSumWords = 12;
inline constexpr int kNonFiniteWord = kExactSumWords - 1;
inline constexpr int kExactSumExponent = -160;  // of the lowest bit of limb 0

// What one value contributes: `low` is added to word `word`, `high` to the next one.
struct ExactTerm {
  int word = 0;
  int64_t low = 0;
  int64_t high = 0;
};

WEFT_HOST_DEVICE inline ExactTerm exact_term(float value) {
  const uint32_t bits = bits_from_f32(value);
  const int exponent = static_cast<int>(bits >> 23 & 0xff);
  if (exponent == 0xff) return {kNonFiniteWord - 1, 0, 1};
  const uint64_t fraction = bits & 0x7fffff;
  const uint64_t mantissa = exponent == 0 ? fraction : fraction | 0x800000;
  // The lowest mantissa bit is worth 2^-149 for subnormals and for the smallest normal values.
  const int shift = (exponent == 0 ? 0 : exponent - 1) - 149 - kExactSumExponent;
  const uint64_t shifted = mantissa << (shift % 32);
  return {shift / 32, static_cast<int64_t>(shifted & 0xffffffff),
          static_cast<int64_t>(shifted >> 32)};
}

// The sum as a double; NaN when a value was not finite. Carries are resolved first, so equal sums
// give equal bits no matter how they were split into words.
WEFT_HOST_DEVICE inline double exact_total(const int64_t* words) {
  if (words[kNonFiniteWord] != 0) return NAN;
  uint64_t limbs[kNonFiniteWord] = {};
  uint64_t carry = 0;
  for (int k = 0; k < kNonFiniteWord; ++k) {
    carry += static_cast<uint64_t>(words[k]);
    limbs[k] = carry & 0xffffffff;
    carry >>= 32;
  }
  double total = 0;
  for (int k = kNonFiniteWord; k-- > 0;) {
    total = total * 0x1p32 + static_cast<double>(limbs[k]);
  }
  return ldexp(total, kExactSumExponent);
}

}  // namespace weft

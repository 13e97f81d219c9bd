// Shared by the vector kernels. A function marked WEFT_CLONES is compiled for several instruction
// sets and selected when the program is loaded. Sums run over sixteen lanes that are folded in a
// fixed order, so every choice gives the same bits (tests/conformance/clones_test.cpp).
#pragma once

#include <cstdint>

#include "base/half.h"

// Sanitizers run before the selection can; other compilers use another syntax.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define WEFT_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define WEFT_CLONES
#endif

// Promises that iterations are independent; a result may still be the same array as an operand.
#define WEFT_VECTORIZE _Pragma("GCC ivdep")

namespace weft {

inline constexpr int kLanes = 16;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));
typedef int32_t IntLanes __attribute__((vector_size(kLanes * sizeof(int32_t))));
typedef uint32_t BitLanes __attribute__((vector_size(kLanes * sizeof(uint32_t))));

// Sum of term(i) over i < n, where lanes(i) gives the sixteen terms from i on: lane l sums the
// terms l, l + 16, l + 32, ... and the lanes are folded in halves.
template <class LaneTerms, class Term>
[[gnu::always_inline]] inline float lane_sum(int64_t n, const LaneTerms& lanes, const Term& term) {
  union {
    Lanes vector;
    float lane[kLanes];
  } sum = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum.vector += lanes(i);
  for (int lane = 0; i < n; ++i, ++lane) sum.lane[lane] += term(i);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sum.lane[lane] += sum.lane[lane + half];
  }
  return sum.lane[0];
}

[[gnu::always_inline]] inline Lanes lanes_at(const float* data) {
  return *reinterpret_cast<const Lanes*>(data);
}

// The largest of n values, at least -infinity; NaNs are ignored.
[[gnu::always_inline]] inline float lane_max(const float* x, int64_t n) {
  union {
    Lanes vector;
    float lane[kLanes];
  } top;
  for (int lane = 0; lane < kLanes; ++lane) top.lane[lane] = -__builtin_inff();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Lanes next = lanes_at(x + i);
    top.vector = next > top.vector ? next : top.vector;
  }
  for (; i < n; ++i) top.lane[0] = x[i] > top.lane[0] ? x[i] : top.lane[0];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) {
      if (top.lane[lane + half] > top.lane[lane]) top.lane[lane] = top.lane[lane + half];
    }
  }
  return top.lane[0];
}

[[gnu::always_inline]] inline Lanes& lanes_at(float* data) {
  return *reinterpret_cast<Lanes*>(data);
}

[[gnu::always_inline]] inline uint32_t bits_of(float x) {
  return bits_from_f32(x);
}
[[gnu::always_inline]] inline BitLanes bits_of(Lanes x) {
  return reinterpret_cast<BitLanes>(x);
}
[[gnu::always_inline]] inline float from_bits(uint32_t bits) {
  return f32_from_bits(bits);
}
[[gnu::always_inline]] inline Lanes from_bits(BitLanes bits) {
  return reinterpret_cast<Lanes>(bits);
}

// e^x within 1.1 ulp; 0 below -87.3, where the result would be subnormal; infinity above 88.72.
template <class F>
[[gnu::always_inline]] inline F exp_f32(F x) {
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer, held in the low bits
  constexpr float kLow = -87.3f, kHigh = 0x1.62e42ep+6f;
  const F shifted = x * 0x1.715476p+0f + kRound;  // x / ln 2
  const F n = shifted - kRound;
  // ln 2 in two parts; the first has trailing zeros, so that n * part is exact.
  const F r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  // (e^r - 1 - r) / r^2 with the smallest error of e^r between -ln 2 / 2 and ln 2 / 2: 3.1e-9.
  F p = r * 0x1.6a2256p-10f + 0x1.123b02p-7f;
  p = p * r + 0x1.5558f8p-5f;
  p = p * r + 0x1.55549p-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = p * (r * r) + r + 1.0f;
  // Times 2^n: n is added to the exponent, which has room for it within the bounds.
  const F value = from_bits(bits_of(p) + (bits_of(shifted) << 23));
  const F above_low = x < kLow ? F{} : value;
  return x <= kHigh ? above_low : x + __builtin_inff();  // a NaN stays one
}

// 1 / (1 + e^-x) within 2.5 ulp from -87 on; below, where the result is subnormal, 0 from -88.72
// on.
[[gnu::always_inline]] inline float sigmoid_f32(float x) {
  return 1.0f / (1.0f + exp_f32(-x));
}

}  // namespace weft

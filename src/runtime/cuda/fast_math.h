// Single instructions of the special function unit, accurate enough for half types. Denormal
// results, below 2^-126, are flushed to zero.
#pragma once

namespace weft::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// 2^x within 2 ulps.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x within 1 ulp.
__device__ inline float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace weft::cuda

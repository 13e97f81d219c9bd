// The activation functions of the models and their derivatives. Half types use the fast exponential
// and reciprocal, whose error is far below their rounding. Every kernel of an op uses the same
// function, so vector and plain rows have the same bits.
#pragma once

#include "graph/type.h"
#include "runtime/cuda/fast_math.h"

namespace weft::cuda {

// 1 / (1 + exp(-x)), with the accuracy that `dtype` needs.
__device__ inline float sigmoid(DType dtype, float x) {
  if (dtype == DType::F32) return 1.0f / (1.0f + expf(-x));
  return fast_reciprocal(1.0f + fast_exp2(x * -kLog2E));
}

// gelu(x) = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form without its
// cancellation.
inline constexpr float kGeluScale = 1.5957691216057308f;  // 2 sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715f;

__device__ inline float gelu_gate(DType dtype, float x) {
  if (dtype == DType::F32) return sigmoid(dtype, kGeluScale * (x + kGeluCubic * (x * x * x)));
  constexpr float kLinear = -kGeluScale * kLog2E;
  return fast_reciprocal(1.0f + fast_exp2(x * fmaf(x * x, kGeluCubic * kLinear, kLinear)));
}

__device__ inline float gelu_value(DType dtype, float x) {
  return x * gelu_gate(dtype, x);
}

__device__ inline float gelu_grad_value(DType dtype, float dy, float x) {
  const float s = gelu_gate(dtype, x);
  const float slope = fmaf(x * x, 3.0f * kGeluCubic * kGeluScale, kGeluScale);
  return dy * (s * fmaf(x * slope, 1.0f - s, 1.0f));
}

// swiglu(gate, up) = gate sigmoid(gate) up.
__device__ inline float swiglu_value(DType dtype, float gate, float up) {
  return gate * sigmoid(dtype, gate) * up;
}

struct GateUp {
  float gate;
  float up;
};

__device__ inline GateUp swiglu_slopes(DType dtype, float dy, float gate, float up) {
  const float s = sigmoid(dtype, gate);
  return {dy * up * (s * (1.0f + gate * (1.0f - s))), dy * (gate * s)};
}

}  // namespace weft::cuda

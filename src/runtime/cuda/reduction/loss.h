// Shared by the loss kernels: gradients of logits have the same bits whichever kernel computes
// them.
#pragma once

#include "runtime/cuda/fast_math.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

// In base 2, the exponent of a probability is x log2(e) minus this.
__device__ inline float exponent_base(float lse) {
  return lse * kLog2E;
}

// Gradients of eight logits; logit `target`, if it is one of them, is the target's.
template <DType kType>
__device__ void logit_grads(float (&value)[kLanes], float lse, int target, float scale) {
#pragma unroll
  for (int e = 0; e < kLanes; ++e) {
    const float p = kType == DType::F32 ? __expf(value[e] - lse)
                                        : fast_exp2(fmaf(value[e], kLog2E, -exponent_base(lse)));
    value[e] = p * scale;
  }
  if (target < 0 || target >= kLanes) return;
#pragma unroll
  for (int e = 0; e < kLanes; ++e) value[e] -= e == target ? scale : 0.0f;
}

// A tensor of rows of logits, with the other inputs and the outputs.
struct LossArgs {
  const void* logits = nullptr;
  const int32_t* targets = nullptr;
  const float* valid = nullptr;
  const float* dloss = nullptr;  // nullptr: no gradient
  void* dlogits = nullptr;       // may alias the logits
  float* lse = nullptr;          // nullptr: not needed
  float* losses = nullptr;       // one per row
  int64_t rows = 0;
  int64_t n = 0;
};

// The arguments of cross_entropy and of cross_entropy_both.
LossArgs loss_args(const Launch& launch);
LossArgs loss_both_args(const Launch& launch);

// The loss: the losses of the rows, added in a fixed tree.
void launch_total_loss(const LossArgs& args, const Tensor& loss, const Launch& launch);

}  // namespace weft::cuda

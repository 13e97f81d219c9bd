// Activation functions over runs of f32, shared by all kernels that apply one.
#pragma once

#include <cstdint>

namespace weft {

// dx = dy * gelu'(x); dx may be dy or x.
void gelu_grad_block(const float* dy, const float* x, int64_t n, float* dx);

}  // namespace weft

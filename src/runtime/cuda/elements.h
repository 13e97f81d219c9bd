// How every kernel here reads and writes floating-point tensors: as f32, whatever the stored type.
// The type is a run-time field that is uniform across a launch, so one kernel handles any mix of
// f32, bf16 and f16. Also grid size arithmetic.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/half.h"
#include "plan/kernel.h"
#include "runtime/cuda/device/stream.h"

namespace weft::cuda {

// A floating-point tensor inside a kernel.
struct Elements {
  void* data = nullptr;
  DType dtype = DType::F32;

  __device__ float get(int64_t i) const {
    if (dtype == DType::F32) return static_cast<const float*>(data)[i];
    const uint16_t half = static_cast<const uint16_t*>(data)[i];
    return dtype == DType::BF16 ? f32_from_bf16(half) : f32_from_f16(half);
  }

  __device__ void put(int64_t i, float value) const {
    if (dtype == DType::F32) {
      static_cast<float*>(data)[i] = value;
    } else {
      static_cast<uint16_t*>(data)[i] =
          dtype == DType::BF16 ? bf16_from_f32(value) : f16_from_f32(value);
    }
  }
};

inline Elements elements(const Tensor& tensor) {
  return {tensor.data, tensor.dtype};
}

inline constexpr int kThreads = 256;

// Blocks of `per_block` items that cover n items; at least one, as an empty grid is an error.
inline unsigned blocks_for(int64_t n, int64_t per_block) {
  const int64_t blocks = n <= 0 ? 1 : (n - 1) / per_block + 1;
  CHECK(blocks <= 0x7fffffff, "a grid of ", blocks, " blocks");
  return static_cast<unsigned>(blocks);
}

// The element of this thread in a grid of one thread per element.
__device__ inline int64_t global_thread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

}  // namespace weft::cuda

// grad_norm: one f32 tree sum of squares per block of 1024 elements, then the block values are
// added as 128-bit integers at the exponent of the largest. Integer sums have no order, so the bits
// do not depend on the device or on how the tensors are cut into whole blocks.
#include <cmath>

#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/reduce.h"

namespace weft::cuda {

namespace {

constexpr int kNormBlock = static_cast<int>(kFlatBlock);

// Neighbours are added first, a short last block is filled up with zeros.
__global__ void square_sums(Elements g, int64_t n, float* sums) {
  __shared__ float partial[kNormBlock];
  const int64_t i = global_thread();
  const float value = i < n ? g.get(i) : 0.0f;
  partial[threadIdx.x] = value * value;
  __syncthreads();
  for (unsigned step = 1; step < kNormBlock; step *= 2) {
    if (threadIdx.x % (2 * step) == 0) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

__device__ float larger_or_nan(float a, float b) {
  if (isnan(a) || isnan(b)) return NAN;
  return fmaxf(a, b);
}

__global__ void norm_of_sums(const float* sums, int64_t blocks, float* norm) {
  float own_largest = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += blockDim.x) {
    own_largest = larger_or_nan(own_largest, sums[i]);
  }
  const float largest = block_reduce(own_largest, larger_or_nan);
  if (largest == 0 || !isfinite(largest)) {
    if (threadIdx.x == 0) *norm = largest;
    return;
  }
  int exponent = 0;
  frexp(static_cast<double>(largest), &exponent);
  const int shift = 62 - exponent;  // the largest becomes less than 2^62
  __int128 own_sum = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += blockDim.x) {
    own_sum += static_cast<int64_t>(ldexp(static_cast<double>(sums[i]), shift));
  }
  const __int128 sum = block_reduce(own_sum, [](__int128 a, __int128 b) { return a + b; });
  if (threadIdx.x == 0) {
    *norm = static_cast<float>(sqrt(ldexp(static_cast<double>(sum), -shift)));
  }
}

}  // namespace

int64_t grad_norm_workspace(const Call& call) {
  int64_t blocks = 0;
  for (const TensorType& g : call.operands) blocks += blocks_for(count(g.shape), kNormBlock);
  return blocks * static_cast<int64_t>(sizeof(float));
}

void launch_grad_norm(const Launch& launch) {
  auto* sums = static_cast<float*>(launch.workspace);
  int64_t blocks = 0;
  for (const Tensor& g : launch.operands) {
    const unsigned grid = blocks_for(g.elements(), kNormBlock);
    square_sums<<<grid, kNormBlock, 0, stream_of(launch)>>>(elements(g), g.elements(),
                                                            sums + blocks);
    blocks += grid;
  }
  norm_of_sums<<<1, 1024, 0, stream_of(launch)>>>(sums, blocks, launch.results.at(0).as<float>());
}

}  // namespace weft::cuda

// square_sum and norm: one f32 tree sum of squares per block of 1024 elements, the block values
// added as integers. Integer sums have no order, so neither the device nor the way in which tensors
// are cut into whole blocks changes the bits, and atomics may be used.
#include <algorithm>

#include "base/exact_sum.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"

namespace weft::cuda {

namespace {

constexpr int kNormBlock = static_cast<int>(kFlatBlock);
constexpr unsigned kMaxGrid = 4096;

// Neighbours are added first; the result is that of lane 0.
__device__ float warp_tree(float value) {
  for (int step = 1; step < 32; step *= 2) value += __shfl_down_sync(0xffffffff, value, step);
  return value;
}

// The tree over the 1024 threads of a block, for thread 0.
__device__ float block_tree(float value) {
  __shared__ float partial[32];
  value = warp_tree(value);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x < 32 ? warp_tree(partial[threadIdx.x]) : 0.0f;
  __syncthreads();
  return value;
}

// A short last block is filled up with zeros.
__global__ void square_sum(Elements g, int64_t n, int64_t blocks, unsigned long long* words) {
  __shared__ int64_t sum[kExactSumWords];
  if (threadIdx.x < kExactSumWords) sum[threadIdx.x] = 0;
  __syncthreads();
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t i = block * kNormBlock + threadIdx.x;
    const float value = i < n ? g.get(i) : 0.0f;
    const float total = block_tree(value * value);
    if (threadIdx.x == 0) {
      const ExactTerm term = exact_term(total);
      sum[term.word] += term.low;
      sum[term.word + 1] += term.high;
    }
  }
  __syncthreads();
  if (threadIdx.x < kExactSumWords && sum[threadIdx.x] != 0) {
    atomicAdd(words + threadIdx.x, static_cast<unsigned long long>(sum[threadIdx.x]));
  }
}

__global__ void norm_of_words(const int64_t* words, const float* scale, float* result) {
  const double factor = scale != nullptr ? *scale : 1.0;
  *result = static_cast<float>(sqrt(exact_total(words)) / factor);
}

}  // namespace

void launch_square_sum(const Launch& launch) {
  const Tensor& acc = launch.results.at(0);
  CUDA_CHECK(cudaMemsetAsync(acc.data, 0, kExactSumWords * sizeof(int64_t), stream_of(launch)));
  for (const Tensor& g : launch.operands) {
    const unsigned blocks = blocks_for(g.elements(), kNormBlock);
    square_sum<<<std::min(blocks, kMaxGrid), kNormBlock, 0, stream_of(launch)>>>(
        elements(g), g.elements(), blocks, acc.as<unsigned long long>());
  }
}

void launch_norm(const Launch& launch) {
  const float* scale = launch.operands.size() > 1 ? launch.operands[1].as<float>() : nullptr;
  norm_of_words<<<1, 1, 0, stream_of(launch)>>>(launch.operands.at(0).as<int64_t>(), scale,
                                                launch.results.at(0).as<float>());
}

}  // namespace weft::cuda

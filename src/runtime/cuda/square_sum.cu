// square_sum and norm: one f32 tree sum of squares per block of 1024 elements, the block values
// added as integers. Integer sums have no order, so neither the device nor the way in which tensors
// are cut into whole blocks changes the bits, and atomics may be used.
#include <algorithm>

#include "base/exact_sum.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

constexpr int kNormBlock = static_cast<int>(kFlatBlock);
constexpr unsigned kMaxGrid = 1056;

constexpr int kWarps = 8;
constexpr int kPerLane = kNormBlock / 32;

// The tree over 32 neighbours, neighbours added first.
__device__ float lane_tree(float (&value)[kPerLane]) {
#pragma unroll
  for (int width = kPerLane; width > 1; width /= 2) {
#pragma unroll
    for (int e = 0; e < width / 2; ++e) value[e] = value[2 * e] + value[2 * e + 1];
  }
  return value[0];
}

// A warp makes the tree of a block of 1024 elements: lane l adds elements 32 l to 32 l + 31, then
// the lanes are joined. A short last block is filled up with zeros.
__device__ float block_squares(const Elements& g, int64_t n, int64_t block) {
  const int64_t first = block * kNormBlock + threadIdx.x % 32 * kPerLane;
  float value[kPerLane];
#pragma unroll
  for (int v = 0; v < kPerLane / kLanes; ++v) {
    float part[kLanes] = {};
    const int64_t i = first + v * kLanes;
    if (i + kLanes <= n) {
      load_vector(g, i, part);
    } else {
      for (int e = 0; e < kLanes; ++e) part[e] = i + e < n ? g.get(i + e) : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < kLanes; ++e) value[v * kLanes + e] = part[e] * part[e];
  }
  float sum = lane_tree(value);
  for (int step = 1; step < 32; step *= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
  return sum;
}

// Several tensors in one launch; their blocks are counted through.
struct SquareSumArgs {
  static constexpr int kTensors = 64;
  Elements g[kTensors];
  int64_t elements[kTensors];
  int64_t end[kTensors];  // blocks of this tensor and those before it
  int tensors = 0;
};

__global__ void square_sum(SquareSumArgs args, unsigned long long* words) {
  __shared__ unsigned long long sum[kExactSumWords];
  if (threadIdx.x < kExactSumWords) sum[threadIdx.x] = 0;
  __syncthreads();
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kWarps;
  int t = 0;
  for (int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       block < args.end[args.tensors - 1]; block += warps) {
    while (block >= args.end[t]) ++t;
    const int64_t first = t > 0 ? args.end[t - 1] : 0;
    const float total = block_squares(args.g[t], args.elements[t], block - first);
    if (threadIdx.x % 32 == 0) {
      const ExactTerm term = exact_term(total);
      atomicAdd(sum + term.word, static_cast<unsigned long long>(term.low));
      atomicAdd(sum + term.word + 1, static_cast<unsigned long long>(term.high));
    }
  }
  __syncthreads();
  if (threadIdx.x < kExactSumWords && sum[threadIdx.x] != 0) {
    atomicAdd(words + threadIdx.x, sum[threadIdx.x]);
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
  for (size_t first = 0; first < launch.operands.size(); first += SquareSumArgs::kTensors) {
    SquareSumArgs args;
    int64_t blocks = 0;
    const size_t end = std::min(launch.operands.size(), first + SquareSumArgs::kTensors);
    for (size_t i = first; i < end; ++i) {
      const Tensor& g = launch.operands[i];
      blocks += blocks_for(g.elements(), kNormBlock);
      args.g[args.tensors] = elements(g);
      args.elements[args.tensors] = g.elements();
      args.end[args.tensors++] = blocks;
    }
    square_sum<<<std::min(blocks_for(blocks, kWarps), kMaxGrid), 32 * kWarps, 0,
                 stream_of(launch)>>>(args, acc.as<unsigned long long>());
  }
}

void launch_norm(const Launch& launch) {
  const float* scale = launch.operands.size() > 1 ? launch.operands[1].as<float>() : nullptr;
  norm_of_words<<<1, 1, 0, stream_of(launch)>>>(launch.operands.at(0).as<int64_t>(), scale,
                                                launch.results.at(0).as<float>());
}

}  // namespace weft::cuda

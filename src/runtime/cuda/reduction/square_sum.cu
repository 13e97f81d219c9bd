// square_sum and norm: one f32 tree sum of squares per block of 1024 elements; the block values are
// added as integers. Integer addition is associative, so neither the device nor sharding the
// tensors at block boundaries changes the bits, and atomics are safe.
#include <algorithm>

#include "base/exact_sum.h"
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

constexpr int kNormBlock = static_cast<int>(kFlatBlock);
constexpr unsigned kMaxGrid = 1056;

constexpr int kWarps = 8;
constexpr int kParts = kNormBlock / (32 * kLanes);  // vectors per lane
static_assert(kParts == 4);

// Squares of a vector summed in a tree, neighbours first.
__device__ float vector_squares(const Elements& g, int64_t n, int64_t i) {
  float value[kLanes] = {};
  if (i + kLanes <= n) {
    load_vector(g, i, value);
  } else {
    for (int e = 0; e < kLanes; ++e) value[e] = i + e < n ? g.get(i + e) : 0.0f;
  }
#pragma unroll
  for (int e = 0; e < kLanes; ++e) value[e] *= value[e];
#pragma unroll
  for (int width = kLanes; width > 1; width /= 2) {
#pragma unroll
    for (int e = 0; e < width / 2; ++e) value[e] = value[2 * e] + value[2 * e + 1];
  }
  return value[0];
}

// A warp sums a block of 1024 elements in a tree, neighbours first; a short last block is padded
// with zeros. Part p of lane l is vector 32 p + l. Neighbouring lanes exchange halves of their
// parts until each has one, p = 2 (l mod 2) + (l / 2 mod 2); then lanes are added, then parts.
__device__ float block_squares(const Elements& g, int64_t n, int64_t block) {
  const unsigned lane = threadIdx.x % 32;
  float part[kParts];
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    part[p] = vector_squares(g, n, block * kNormBlock + (p * 32 + lane) * kLanes);
  }
  const auto other = [](float value, int step) { return __shfl_xor_sync(0xffffffff, value, step); };
  const bool odd = lane % 2 != 0;
  const float low = (odd ? part[2] : part[0]) + other(odd ? part[0] : part[2], 1);
  const float high = (odd ? part[3] : part[1]) + other(odd ? part[1] : part[3], 1);
  const bool second = lane / 2 % 2 != 0;
  float sum = (second ? high : low) + other(second ? low : high, 2);
  for (const int step : {4, 8, 16, 2, 1}) sum += other(sum, step);
  return sum;
}

// Several tensors in one launch; their blocks are numbered consecutively.
struct SquareSumArgs {
  static constexpr int kTensors = 64;
  Elements g[kTensors];
  int64_t elements[kTensors];
  int64_t end[kTensors];  // blocks of this tensor and all before it
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

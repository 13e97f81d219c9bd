// Simple elementwise loops: they run at memory bandwidth, far faster than the exchange before them.
#include <algorithm>

#include "runtime/comm/nccl/arithmetic.h"
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/elements.h"

namespace weft::nccl {

namespace {

using cuda::Elements;
using cuda::kThreads;

constexpr int64_t kMaxBlocks = 4096;
constexpr int kGapsOfLaunch = 64;
constexpr int kMaxLevels = 32;

unsigned blocks(int64_t elements) {
  return static_cast<unsigned>(std::min<int64_t>(cuda::blocks_for(elements, kThreads), kMaxBlocks));
}

__device__ int64_t grid_threads() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

struct Sources {
  Elements own;
  Elements others;
  int64_t rank = 0;
  int64_t ranks = 1;
  int64_t stride = 0;

  __device__ float get(int64_t source, int64_t i) const {
    if (source == rank) return own.get(i);
    return others.get((source < rank ? source : source - 1) * stride + i);
  }
};

// A binary counter of partial sums: complete subtrees are added as they fill up, the rest from the
// right. The result is the tree that splits every node at the largest power of two below n.
__device__ float sum_of(const Sources& sources, int64_t i) {
  float sums[kMaxLevels];
  int level = 0;
  for (int64_t source = 0; source < sources.ranks; ++source) {
    float sum = sources.get(source, i);
    for (int64_t ones = source; (ones & 1) != 0; ones >>= 1) sum = sums[--level] + sum;
    sums[level++] = sum;
  }
  float sum = sums[--level];
  while (level > 0) sum = sums[--level] + sum;
  return sum;
}

__device__ float sum_of_two(const Sources& sources, int64_t i) {
  return sources.get(0, i) + sources.get(1, i);
}

__device__ float sum_of_four(const Sources& sources, int64_t i) {
  return (sources.get(0, i) + sources.get(1, i)) + (sources.get(2, i) + sources.get(3, i));
}

template <float (*kSum)(const Sources&, int64_t)>
__global__ void sum_kernel(Sources sources, int64_t n, Elements to) {
  for (int64_t i = cuda::global_thread(); i < n; i += grid_threads()) {
    to.put(i, kSum(sources, i));
  }
}

__global__ void convert_kernel(Elements from, int64_t n, Elements to) {
  for (int64_t i = cuda::global_thread(); i < n; i += grid_threads()) to.put(i, from.get(i));
}

struct Gaps {
  Gap gaps[kGapsOfLaunch];
};

__global__ void zero_kernel(Gaps gaps, Elements to) {
  const Gap gap = gaps.gaps[blockIdx.x];
  for (int64_t i = gap.begin + threadIdx.x; i < gap.end; i += blockDim.x) to.put(i, 0.0F);
}

__global__ void note_kernel(volatile int64_t* place, int64_t value) {
  *place = value;
  __threadfence_system();
}

Elements elements(const Run& run) {
  return {run.data, run.dtype};
}

}  // namespace

void tree_sum(const Parts& parts, const Run& to, cudaStream_t stream) {
  if (parts.elements == 0) return;
  const Sources sources{elements(parts.own),
                        {parts.others, parts.own.dtype},
                        parts.rank,
                        parts.ranks,
                        parts.elements};
  const auto kernel = parts.ranks == 2   ? sum_kernel<sum_of_two>
                      : parts.ranks == 4 ? sum_kernel<sum_of_four>
                                         : sum_kernel<sum_of>;
  kernel<<<blocks(parts.elements), kThreads, 0, stream>>>(sources, parts.elements, elements(to));
  CUDA_CHECK(cudaGetLastError());
}

void convert(const Run& from, int64_t n, const Run& to, cudaStream_t stream) {
  convert_kernel<<<blocks(n), kThreads, 0, stream>>>(elements(from), n, elements(to));
  CUDA_CHECK(cudaGetLastError());
}

void zero(std::span<const Gap> gaps, const Run& to, cudaStream_t stream) {
  for (size_t first = 0; first < gaps.size(); first += kGapsOfLaunch) {
    const size_t count = std::min<size_t>(gaps.size() - first, kGapsOfLaunch);
    Gaps some;
    std::copy_n(gaps.begin() + static_cast<std::ptrdiff_t>(first), count, some.gaps);
    zero_kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(some, elements(to));
    CUDA_CHECK(cudaGetLastError());
  }
}

void note(int64_t* place, int64_t value, cudaStream_t stream) {
  note_kernel<<<1, 1, 0, stream>>>(place, value);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace weft::nccl

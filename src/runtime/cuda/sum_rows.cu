// sum_rows in two stages: blocks of rows make partial sums of eight columns per thread, which are
// then added in order.
#include "runtime/cuda/launches.h"
#include "runtime/cuda/partials.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

constexpr int kColumnThreads = 32;  // of eight columns each
constexpr int kRowThreads = 8;

// Block (strip of columns, partial): its rows are partial, partial + partials, ... in steps of
// kRowThreads.
template <DType kType>
__global__ void partial_sums(const void* x, float* partial, int64_t rows, int64_t n) {
  __shared__ float shared[kRowThreads][kColumnThreads][kLanes + 1];
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x) * kLanes;
  float sum[kLanes] = {};
  if (col < n) {
    const int64_t stride = static_cast<int64_t>(gridDim.y) * kRowThreads;
#pragma unroll 4
    for (int64_t row = static_cast<int64_t>(blockIdx.y) * kRowThreads + threadIdx.y; row < rows;
         row += stride) {
      float value[kLanes];
      Vector<kType>::load(x, row * n + col, value);
      for (int e = 0; e < kLanes; ++e) sum[e] += value[e];
    }
  }
  for (int e = 0; e < kLanes; ++e) shared[threadIdx.y][threadIdx.x][e] = sum[e];
  __syncthreads();
  if (threadIdx.y != 0 || col >= n) return;
  for (int r = 1; r < kRowThreads; ++r) {
    for (int e = 0; e < kLanes; ++e) sum[e] += shared[r][threadIdx.x][e];
  }
  Vector<DType::F32>::store(partial, blockIdx.y * n + col, sum);
}

constexpr int kAddThreads = 32;

// A block of 32 columns: kAddThreads threads share the rows of a column, their sums are added in
// order.
__global__ void add_partials(const float* partial, int64_t rows, Elements y, int64_t n) {
  __shared__ float shared[kAddThreads][33];
  const int64_t col = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (col < n) {
#pragma unroll 8
    for (int64_t row = threadIdx.y; row < rows; row += kAddThreads) sum += partial[row * n + col];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= n) return;
  for (int r = 1; r < kAddThreads; ++r) sum += shared[r][threadIdx.x];
  y.put(col, sum);
}

}  // namespace

void launch_add_partials(const float* partial, int64_t rows, const Tensor& y, cudaStream_t stream) {
  const int64_t n = y.elements();
  add_partials<<<blocks_for(n, 32), dim3(32, kAddThreads), 0, stream>>>(partial, rows, elements(y),
                                                                        n);
}

void launch_tiled_sum_rows(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const int64_t rows = row_count(x);
  const int64_t n = row_length(x);
  const int64_t partials = sum_rows_partials(rows);
  auto* partial = static_cast<float*>(launch.workspace);
  const dim3 grid(blocks_for(n, kColumnThreads * kVector), static_cast<unsigned>(partials));
  with_dtype(x.dtype, [&](auto tag) {
    partial_sums<tag.kValue><<<grid, dim3(kColumnThreads, kRowThreads), 0, stream_of(launch)>>>(
        x.data, partial, rows, n);
  });
  launch_add_partials(partial, partials, launch.results.at(0), stream_of(launch));
}

}  // namespace weft::cuda

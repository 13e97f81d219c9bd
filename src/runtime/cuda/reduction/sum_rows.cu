// sum_rows: a thread handles eight columns of one lane of rows.
#include "runtime/cuda/launches.h"
#include "runtime/cuda/reduction/partials.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

constexpr int kColumnThreads = 32;  // of eight columns each
constexpr int kRowThreads = 8;
constexpr int kBatch = 4;  // rows that are fetched together

// Block (strip of columns, kRowThreads lanes). Column indices are 32-bit: with 64 bits nvcc 13.0
// splits each 16-byte store into four.
template <DType kType>
__global__ void __launch_bounds__(kColumnThreads* kRowThreads)
    lane_sums(const void* x, float* partial, int64_t rows, int n, int64_t lanes) {
  using V = Vector<kType>;
  const int col = static_cast<int>(blockIdx.x * kColumnThreads + threadIdx.x) * kLanes;
  const int64_t lane = static_cast<int64_t>(blockIdx.y) * kRowThreads + threadIdx.y;
  if (col >= n) return;
  float sum[kLanes] = {};
  for (int64_t row = lane; row < rows; row += kBatch * lanes) {
    typename V::Raw raw[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t at = row + b * lanes;
      if (at < rows) raw[b] = V::fetch(x, at * n + col);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (row + b * lanes >= rows) continue;
      float value[kLanes];
      V::unpack(raw[b], value);
      for (int e = 0; e < kLanes; ++e) sum[e] += value[e];
    }
  }
  Vector<DType::F32>::store(partial, lane * n + col, sum);
}

constexpr int kAddThreads = 32;
constexpr int kMaxSums = 3;

struct Sums {
  Elements sum[kMaxSums];
};

// One block per 32 columns of one sum: kAddThreads threads share the lanes of a column; their sums
// are added in order.
__global__ void add_partials(const float* partial, int64_t lanes, Sums sums, int64_t n) {
  __shared__ float shared[kAddThreads][33];
  const float* from = partial + blockIdx.y * lanes * n;
  const int64_t col = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (col < n) {
#pragma unroll 8
    for (int64_t lane = threadIdx.y; lane < lanes; lane += kAddThreads) sum += from[lane * n + col];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= n) return;
  for (int r = 1; r < kAddThreads; ++r) sum += shared[r][threadIdx.x];
  sums.sum[blockIdx.y].put(col, sum);
}

}  // namespace

void launch_add_partials(const float* partial, int64_t lanes, const std::vector<Tensor>& sums,
                         cudaStream_t stream) {
  CHECK(!sums.empty() && sums.size() <= kMaxSums, sums.size(), " sums");
  Sums to;
  for (size_t i = 0; i < sums.size(); ++i) to.sum[i] = elements(sums[i]);
  const int64_t n = sums[0].elements();
  const dim3 grid(blocks_for(n, 32), static_cast<unsigned>(sums.size()));
  add_partials<<<grid, dim3(32, kAddThreads), 0, stream>>>(partial, lanes, to, n);
}

void launch_tiled_sum_rows(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const int64_t n = row_length(x);
  const int64_t lanes = row_lanes(n);
  auto* partial = static_cast<float*>(launch.workspace);
  const dim3 grid(blocks_for(n, kColumnThreads * kVector),
                  static_cast<unsigned>(lanes / kRowThreads));
  with_dtype(x.dtype, [&](auto tag) {
    lane_sums<tag.kValue><<<grid, dim3(kColumnThreads, kRowThreads), 0, stream_of(launch)>>>(
        x.data, partial, row_count(x), static_cast<int>(n), lanes);
  });
  launch_add_partials(partial, lanes, {launch.results.at(0)}, stream_of(launch));
}

}  // namespace weft::cuda

// matmul in its three forms and sum_rows. The forms differ only in strides: C[i,j] is the sum over
// k of A(i,k) B(k,j). Each block computes a tile of 32 x 32 results from tiles in shared memory.
#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/reduction/reduce.h"

namespace weft::cuda {

namespace {

constexpr int kTile = 32;

struct Matrix {
  Elements data;
  int64_t row_stride = 0;
  int64_t col_stride = 0;

  __device__ float at(int64_t row, int64_t col) const {
    return data.get(row * row_stride + col * col_stride);
  }
};

struct MatmulArgs {
  Matrix a;  // m x k
  Matrix b;  // k x n
  Elements bias;
  Elements c;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
};

// Threads are assigned to the elements of a tile so that neighbours in x are neighbours in memory.
__device__ void load_tile(float (*tile)[kTile + 1], const Matrix& from, int64_t row0, int64_t col0,
                          int64_t rows, int64_t cols) {
  const bool along_rows = from.col_stride == 1;
  const int row = along_rows ? threadIdx.y : threadIdx.x;
  const int col = along_rows ? threadIdx.x : threadIdx.y;
  const bool inside = row0 + row < rows && col0 + col < cols;
  tile[row][col] = inside ? from.at(row0 + row, col0 + col) : 0.0f;
}

__global__ void tiled_matmul(MatmulArgs args, int64_t tiles_n) {
  __shared__ float a[kTile][kTile + 1];
  __shared__ float b[kTile][kTile + 1];
  const int64_t i0 = blockIdx.x / tiles_n * kTile;
  const int64_t j0 = blockIdx.x % tiles_n * kTile;
  float sum = 0;
  for (int64_t k0 = 0; k0 < args.k; k0 += kTile) {
    load_tile(a, args.a, i0, k0, args.m, args.k);
    load_tile(b, args.b, k0, j0, args.k, args.n);
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum = fmaf(a[threadIdx.y][k], b[k][threadIdx.x], sum);
    __syncthreads();
  }
  const int64_t i = i0 + threadIdx.y;
  const int64_t j = j0 + threadIdx.x;
  if (i >= args.m || j >= args.n) return;
  if (args.bias.data != nullptr) sum += args.bias.get(j);
  args.c.put(i * args.n + j, sum);
}

__global__ void sum_rows(Elements x, Elements y, int64_t rows, int64_t n) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const float sum = column_sum(rows, col < n, [&](int64_t row) { return x.get(row * n + col); });
  if (threadIdx.y == 0 && col < n) y.put(col, sum);
}

}  // namespace

void launch_matmul(const Launch& launch) {
  const Tensor& a = launch.operands.at(0);
  const Tensor& b = launch.operands.at(1);
  MatmulArgs args;
  args.c = elements(launch.results.at(0));
  if (launch.operands.size() > 2) args.bias = elements(launch.operands[2]);
  if (launch.call->bool_attr("ta")) {
    args.m = row_length(a);
    args.n = row_length(b);
    args.k = row_count(a);
    args.a = {elements(a), 1, args.m};
    args.b = {elements(b), args.n, 1};
  } else {
    args.m = row_count(a);
    args.k = row_length(a);
    args.a = {elements(a), args.k, 1};
    if (launch.call->bool_attr("tb")) {
      args.n = b.shape.at(0);
      args.b = {elements(b), 1, args.k};
    } else {
      args.n = b.shape.at(1);
      args.b = {elements(b), args.n, 1};
    }
  }
  const int64_t tiles_m = (args.m + kTile - 1) / kTile;
  const int64_t tiles_n = (args.n + kTile - 1) / kTile;
  tiled_matmul<<<blocks_for(tiles_m * tiles_n, 1), dim3(kTile, kTile), 0, stream_of(launch)>>>(
      args, tiles_n);
}

void launch_sum_rows(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const int64_t n = row_length(x);
  sum_rows<<<blocks_for(n, 32), dim3(32, 32), 0, stream_of(launch)>>>(
      elements(x), elements(launch.results.at(0)), row_count(x), n);
}

}  // namespace weft::cuda

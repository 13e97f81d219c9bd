// qk_norm, qk_unit_norm and their gradients: one warp per head. The gradients of the weights are
// sums over all rows and heads: a block adds those of its rows, and add_partials adds the blocks.
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/reduction/partials.h"

namespace weft::cuda {

namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;
constexpr int kMostPerLane = kMaxHeadDim / kWarp;

// The same tree in every lane, so all of them have the result.
__device__ float warp_sum(float value) {
  for (int half = kWarp / 2; half > 0; half /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, half);
  }
  return value;
}

struct QkNorm {
  Elements x, q, k;
  bool weighted = true;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t dim = 0;

  __device__ int64_t all() const { return heads + 2 * kv_heads; }
  __device__ bool is_normed(int64_t head) const { return head < heads + kv_heads; }
  __device__ int64_t statistic(int64_t row, int64_t head) const {
    return row * (heads + kv_heads) + head;
  }
  __device__ float weight(int64_t head, int64_t i) const {
    return weighted ? (head < heads ? q : k).get(i) : 1.0f;
  }
};

QkNorm qk_norm_of(const Launch& launch, const Tensor& x, size_t first_weight) {
  QkNorm norm;
  norm.x = elements(x);
  norm.rows = row_count(x);
  norm.heads = launch.call->int_attr("heads");
  norm.kv_heads = launch.call->int_attr("kv_heads");
  norm.dim = row_length(x) / (norm.heads + 2 * norm.kv_heads);
  norm.weighted = launch.operands.size() > first_weight;
  if (!norm.weighted) return norm;
  norm.q = elements(launch.operands.at(first_weight));
  norm.k = elements(launch.operands.at(first_weight + 1));
  return norm;
}

__global__ void qk_norm(QkNorm norm, float eps, Elements y, float* rstd) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (at >= norm.rows * norm.all()) return;
  const int64_t row = at / norm.all(), head = at % norm.all(), first = at * norm.dim;
  float scale = 1;
  if (norm.is_normed(head)) {
    float squares = 0;
    for (int64_t i = threadIdx.x; i < norm.dim; i += kWarp) {
      const float x = norm.x.get(first + i);
      squares += x * x;
    }
    scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(norm.dim) + eps);
    if (threadIdx.x == 0) rstd[norm.statistic(row, head)] = scale;
  }
  for (int64_t i = threadIdx.x; i < norm.dim; i += kWarp) {
    const float x = norm.x.get(first + i);
    y.put(first + i, norm.is_normed(head) ? x * scale * norm.weight(head, i) : x);
  }
}

// Sums of this lane's columns of dq and dk.
struct WeightSums {
  float q[kMostPerLane] = {};
  float k[kMostPerLane] = {};
};

__device__ void grad_of_head(const QkNorm& norm, Elements dy, float scale, int64_t head,
                             int64_t first, Elements dx, WeightSums& sums) {
  float dot = 0;
  int lane_column = 0;
  for (int64_t i = threadIdx.x; i < norm.dim; i += kWarp, ++lane_column) {
    const float d = dy.get(first + i), h = norm.x.get(first + i) * scale;
    dot += d * norm.weight(head, i) * h;
    (head < norm.heads ? sums.q : sums.k)[lane_column] += d * h;
  }
  const float mean = warp_sum(dot) / static_cast<float>(norm.dim);
  for (int64_t i = threadIdx.x; i < norm.dim; i += kWarp) {
    const float h = norm.x.get(first + i) * scale;
    dx.put(first + i, scale * (dy.get(first + i) * norm.weight(head, i) - h * mean));
  }
}

// Adds the sums of the warps in order and writes the block's line of both partial sums.
__device__ void write_lines(const QkNorm& norm, const WeightSums& sums, float* partial) {
  __shared__ float shared[kWarps][kWarp];
  for (int which = 0; which < 2; ++which) {
    float* line = partial + (static_cast<int64_t>(which) * gridDim.x + blockIdx.x) * norm.dim;
    for (int column = 0; column < kMostPerLane; ++column) {
      const int64_t i = static_cast<int64_t>(column) * kWarp + threadIdx.x;
      if (static_cast<int64_t>(column) * kWarp >= norm.dim) break;  // the same in all threads
      shared[threadIdx.y][threadIdx.x] = which == 0 ? sums.q[column] : sums.k[column];
      __syncthreads();
      if (threadIdx.y == 0 && i < norm.dim) {
        float sum = 0;
        for (int warp = 0; warp < kWarps; ++warp) sum += shared[warp][threadIdx.x];
        line[i] = sum;
      }
      __syncthreads();
    }
  }
}

__global__ void qk_norm_grad(QkNorm norm, Elements dy, const float* rstd, Elements dx,
                             float* partial) {
  WeightSums sums;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
       at < norm.rows * norm.all(); at += step) {
    const int64_t row = at / norm.all(), head = at % norm.all(), first = at * norm.dim;
    if (norm.is_normed(head)) {
      grad_of_head(norm, dy, rstd[norm.statistic(row, head)], head, first, dx, sums);
    } else {
      for (int64_t i = threadIdx.x; i < norm.dim; i += kWarp) {
        dx.put(first + i, dy.get(first + i));
      }
    }
  }
  if (norm.weighted) write_lines(norm, sums, partial);
}

}  // namespace

void launch_qk_norm(const Launch& launch) {
  const QkNorm norm = qk_norm_of(launch, launch.operands.at(0), 1);
  const int64_t heads = norm.rows * (norm.heads + 2 * norm.kv_heads);
  qk_norm<<<blocks_for(heads, kWarps), dim3(kWarp, kWarps), 0, stream_of(launch)>>>(
      norm, static_cast<float>(launch.call->double_attr("eps")), elements(launch.results.at(0)),
      launch.results.at(1).as<float>());
  CUDA_CHECK(cudaGetLastError());
}

void launch_qk_norm_grad(const Launch& launch) {
  const QkNorm norm = qk_norm_of(launch, launch.operands.at(1), 3);
  auto* partial = static_cast<float*>(launch.workspace);
  qk_norm_grad<<<kQkNormLanes, dim3(kWarp, kWarps), 0, stream_of(launch)>>>(
      norm, elements(launch.operands.at(0)), launch.operands.at(2).as<const float>(),
      elements(launch.results.at(0)), partial);
  CUDA_CHECK(cudaGetLastError());
  if (!norm.weighted) return;
  launch_add_partials(partial, kQkNormLanes, {launch.results.at(1), launch.results.at(2)},
                      stream_of(launch));
}

}  // namespace weft::cuda

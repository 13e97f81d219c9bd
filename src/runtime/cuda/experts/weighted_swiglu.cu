// swiglu of the rows of experts, times one weight per row, and its gradient: a warp per row.
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/elementwise/activations.h"
#include "runtime/cuda/experts/lanes.h"
#include "runtime/cuda/launches.h"
#include "runtime/expert_rows.h"

namespace weft::cuda {

namespace {

constexpr int kWarps = 8;

// The row of this warp; -1 if it is beyond the offsets.
__device__ int64_t filled_row(const ExpertRows& rows) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  const int64_t block = row / rows.slots;
  if (block >= rows.sources * rows.parts) return -1;
  const RowRange filled = rows.in_block(block);
  return row >= filled.first && row < filled.first + filled.rows ? row : -1;
}

template <int kCount>
__global__ void weighted_swiglu(Elements x, ExpertRows rows, const float* w, Elements y,
                                int64_t width) {
  const int64_t row = filled_row(rows);
  if (row < 0) return;
  for (int64_t i = threadIdx.x * kCount; i < width; i += kWarp * kCount) {
    float gate[kCount], up[kCount];
    load_run(x, row * 2 * width + i, gate);
    load_run(x, row * 2 * width + width + i, up);
    for (int e = 0; e < kCount; ++e) gate[e] = w[row] * swiglu_value(x.dtype, gate[e], up[e]);
    store_run(y, row * width + i, gate);
  }
}

template <int kCount>
__global__ void weighted_swiglu_grad(Elements dy, Elements x, ExpertRows rows, const float* w,
                                     Elements dx, float* dw, int64_t width) {
  const int64_t row = filled_row(rows);
  if (row < 0) return;
  float dot = 0;
  for (int64_t i = threadIdx.x * kCount; i < width; i += kWarp * kCount) {
    float gate[kCount], up[kCount], d[kCount];
    load_run(x, row * 2 * width + i, gate);
    load_run(x, row * 2 * width + width + i, up);
    load_run(dy, row * width + i, d);
    for (int e = 0; e < kCount; ++e) {
      dot += d[e] * swiglu_value(x.dtype, gate[e], up[e]);
      const GateUp slopes = swiglu_slopes(x.dtype, w[row] * d[e], gate[e], up[e]);
      gate[e] = slopes.gate;
      up[e] = slopes.up;
    }
    store_run(dx, row * 2 * width + i, gate);
    store_run(dx, row * 2 * width + width + i, up);
  }
  dot = warp_sum(dot);
  if (threadIdx.x == 0) dw[row] = dot;
}

template <int kCount>
void swiglu_runs(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  weighted_swiglu<kCount>
      <<<blocks_for(row_count(y), kWarps), dim3(kWarp, kWarps), 0, stream_of(launch)>>>(
          elements(x), expert_rows(x, launch.operands.at(1)),
          launch.operands.at(2).as<const float>(), elements(y), row_length(y));
  CUDA_CHECK(cudaGetLastError());
}

template <int kCount>
void swiglu_runs_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& x = launch.operands.at(1);
  weighted_swiglu_grad<kCount>
      <<<blocks_for(row_count(dy), kWarps), dim3(kWarp, kWarps), 0, stream_of(launch)>>>(
          elements(dy), elements(x), expert_rows(x, launch.operands.at(2)),
          launch.operands.at(3).as<const float>(), elements(launch.results.at(0)),
          launch.results.at(1).as<float>(), row_length(dy));
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch_vector_weighted_swiglu(const Launch& launch) {
  swiglu_runs<kLanes>(launch);
}
void launch_weighted_swiglu(const Launch& launch) {
  swiglu_runs<1>(launch);
}
void launch_vector_weighted_swiglu_grad(const Launch& launch) {
  swiglu_runs_grad<kLanes>(launch);
}
void launch_weighted_swiglu_grad(const Launch& launch) {
  swiglu_runs_grad<1>(launch);
}

}  // namespace weft::cuda

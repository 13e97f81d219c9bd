// layer_norm and rms_norm and their gradients over rows that a block keeps in registers: each
// element is read once. The gradient of the weight is made on the way: a block walks every
// kNormPartials-th row and keeps the sums of its columns, which a second kernel adds up in order.
#include <algorithm>

#include "runtime/cuda/launches.h"
#include "runtime/cuda/partials.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

struct RowNormArgs {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;  // nullptr: none
  void* y = nullptr;
  float* mean = nullptr;  // nullptr: rms_norm
  float* rstd = nullptr;
  int n = 0;
  float eps = 0;
};

// kSlots vectors of a row per thread; threads beyond the row hold zeros.
template <DType kType, int kWarps, int kSlots>
__global__ void row_norm(RowNormArgs args) {
  const int64_t row = blockIdx.x;
  const int64_t first = row * args.n;
  const float count = static_cast<float>(args.n);
  float x[kSlots][kLanes];
  float sum = 0;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int i = static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
    for (int e = 0; e < kLanes; ++e) x[s][e] = 0;
    if (i < args.n) Vector<kType>::load(args.x, first + i, x[s]);
    for (int e = 0; e < kLanes; ++e) sum += x[s][e];
  }
  const float mean = args.mean != nullptr ? fast_block_sum<kWarps>(sum) / count : 0.0f;
  float squares = 0;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int i = static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
    if (i >= args.n) continue;
    for (int e = 0; e < kLanes; ++e) {
      x[s][e] -= mean;
      squares += x[s][e] * x[s][e];
    }
  }
  const float variance = fast_block_sum<kWarps>(squares) / count;
  const float rstd = 1.0f / sqrtf(variance + args.eps);
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int i = static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
    if (i >= args.n) continue;
    float w[kLanes];
    Vector<kType>::load(args.w, i, w);
    for (int e = 0; e < kLanes; ++e) x[s][e] = x[s][e] * rstd * w[e];
    if (args.bias != nullptr) {
      Vector<kType>::load(args.bias, i, w);
      for (int e = 0; e < kLanes; ++e) x[s][e] += w[e];
    }
    Vector<kType>::store(args.y, first + i, x[s]);
  }
  if (threadIdx.x == 0) {
    args.rstd[row] = rstd;
    if (args.mean != nullptr) args.mean[row] = mean;
  }
}

struct RowNormGradArgs {
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* w = nullptr;
  const float* mean = nullptr;  // nullptr: rms_norm
  const float* rstd = nullptr;
  void* dx = nullptr;
  float* partial = nullptr;  // [kNormPartials, n]
  int64_t rows = 0;
  int n = 0;
};

// With g = dy w and h the normalised x: dx = rstd (g - mean(g) - h mean(g h)); rms_norm has no
// mean(g). dw = sum over rows of dy h.
template <DType kType, int kWarps, int kSlots>
__global__ void row_norm_grad(RowNormGradArgs args) {
  const float count = static_cast<float>(args.n);
  float w[kSlots][kLanes];
  float dw[kSlots][kLanes];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int i = static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
    for (int e = 0; e < kLanes; ++e) w[s][e] = dw[s][e] = 0;
    if (i < args.n) Vector<kType>::load(args.w, i, w[s]);
  }
  for (int64_t row = blockIdx.x; row < args.rows; row += kNormPartials) {
    const int64_t first = row * args.n;
    const float rstd = args.rstd[row];
    const float centre = args.mean != nullptr ? args.mean[row] : 0.0f;
    float g[kSlots][kLanes];
    float h[kSlots][kLanes];
    float sum = 0;
    float sum_normal = 0;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int i = static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
      if (i >= args.n) continue;
      Vector<kType>::load(args.dy, first + i, g[s]);
      Vector<kType>::load(args.x, first + i, h[s]);
      for (int e = 0; e < kLanes; ++e) {
        h[s][e] = (h[s][e] - centre) * rstd;
        dw[s][e] += g[s][e] * h[s][e];
        g[s][e] *= w[s][e];
        sum += g[s][e];
        sum_normal += g[s][e] * h[s][e];
      }
    }
    const float2 sums = fast_block_sums<kWarps>(sum_normal, sum);
    const float mean_normal = sums.x / count;
    const float mean = args.mean != nullptr ? sums.y / count : 0.0f;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int i = static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
      if (i >= args.n) continue;
      for (int e = 0; e < kLanes; ++e) g[s][e] = rstd * (g[s][e] - mean - h[s][e] * mean_normal);
      Vector<kType>::store(args.dx, first + i, g[s]);
    }
  }
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int i = static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
    if (i >= args.n) continue;
    Vector<DType::F32>::store(args.partial, blockIdx.x * static_cast<int64_t>(args.n) + i, dw[s]);
  }
}

// Picks threads and vectors per thread by the length of a row and calls run(warps, slots).
template <class Run>
void with_row_shape(int64_t n, Run run) {
  const int64_t vectors = n / kVector;
  if (vectors <= 32) return run(std::integral_constant<int, 1>(), std::integral_constant<int, 1>());
  if (vectors <= 128)
    return run(std::integral_constant<int, 4>(), std::integral_constant<int, 1>());
  if (vectors <= 256)
    return run(std::integral_constant<int, 8>(), std::integral_constant<int, 1>());
  if (vectors <= 512)
    return run(std::integral_constant<int, 8>(), std::integral_constant<int, 2>());
  run(std::integral_constant<int, 8>(), std::integral_constant<int, 4>());
}

}  // namespace

void launch_row_norm(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const bool layer_norm = launch.results.size() > 2;
  RowNormArgs args;
  args.x = x.data;
  args.w = launch.operands.at(1).data;
  if (launch.operands.size() > 2) args.bias = launch.operands[2].data;
  args.y = launch.results.at(0).data;
  if (layer_norm) args.mean = launch.results.at(1).as<float>();
  args.rstd = launch.results.at(layer_norm ? 2 : 1).as<float>();
  args.n = static_cast<int>(row_length(x));
  args.eps = static_cast<float>(launch.call->double_attr("eps"));
  with_dtype(x.dtype, [&](auto tag) {
    with_row_shape(args.n, [&](auto warps, auto slots) {
      row_norm<tag.kValue, warps.value, slots.value>
          <<<blocks_for(row_count(x), 1), 32 * warps.value, 0, stream_of(launch)>>>(args);
    });
  });
}

void launch_row_norm_grad(const Launch& launch) {
  const Tensor& x = launch.operands.at(1);
  const bool layer_norm = launch.operands.size() > 4;
  RowNormGradArgs args;
  args.dy = launch.operands.at(0).data;
  args.x = x.data;
  args.w = launch.operands.at(2).data;
  if (layer_norm) args.mean = launch.operands.at(3).as<float>();
  args.rstd = launch.operands.at(layer_norm ? 4 : 3).as<float>();
  args.dx = launch.results.at(0).data;
  args.partial = static_cast<float*>(launch.workspace);
  args.rows = row_count(x);
  args.n = static_cast<int>(row_length(x));
  with_dtype(x.dtype, [&](auto tag) {
    with_row_shape(args.n, [&](auto warps, auto slots) {
      row_norm_grad<tag.kValue, warps.value, slots.value>
          <<<kNormPartials, 32 * warps.value, 0, stream_of(launch)>>>(args);
    });
  });
  launch_add_partials(args.partial, kNormPartials, launch.results.at(1), stream_of(launch));
}

}  // namespace weft::cuda

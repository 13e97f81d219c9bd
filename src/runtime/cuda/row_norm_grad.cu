// Gradients of layer_norm and rms_norm over rows that stay in registers, with what is added to dx
// and the sums over rows beside it. Column sums are made on the way: lane l walks rows l,
// l + lanes, ... and a second kernel adds the lanes up in order, as sum_rows does. The next row is
// fetched while this one is worked on.
#include <vector>

#include "runtime/cuda/launches.h"
#include "runtime/cuda/partials.h"
#include "runtime/cuda/row_shape.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

struct RowNormGradArgs {
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* w = nullptr;
  const void* more = nullptr;   // nullptr: nothing is added to dx
  const float* mean = nullptr;  // nullptr: rms_norm
  const float* rstd = nullptr;
  void* dx = nullptr;
  float* partial = nullptr;  // [lanes, n] of dw; with kSums of db and the sum of dx besides
  int64_t rows = 0;
  int64_t lanes = 0;
  int n = 0;
};

// What a thread reads of one row.
template <DType kType, int kSlots>
struct RowData {
  typename Vector<kType>::Raw dy[kSlots];
  typename Vector<kType>::Raw x[kSlots];
  typename Vector<kType>::Raw more[kSlots];
  float rstd;
  float mean;

  __device__ void fetch(const RowNormGradArgs& args, int64_t row) {
    if (row >= args.rows) return;
    rstd = args.rstd[row];
    mean = args.mean != nullptr ? args.mean[row] : 0.0f;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int i = static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
      if (i >= args.n) continue;
      const int64_t at = row * args.n + i;
      dy[s] = Vector<kType>::fetch(args.dy, at);
      x[s] = Vector<kType>::fetch(args.x, at);
      if (args.more != nullptr) more[s] = Vector<kType>::fetch(args.more, at);
    }
  }
};

// With g = dy w and h the normalised x: dx = rstd (g - mean(g) - h mean(g h)); rms_norm has no
// mean(g). dw = sum over rows of dy h.
template <DType kType, int kWarps, int kSlots, bool kSums>
__global__ void __launch_bounds__(32 * kWarps * kBlockRows<kWarps>)
    row_norm_grad(RowNormGradArgs args) {
  using V = Vector<kType>;
  const int64_t lane = static_cast<int64_t>(blockIdx.x) * kBlockRows<kWarps> + threadIdx.y;
  const float count = static_cast<float>(args.n);
  typename V::Raw w[kSlots];
  float dw[kSlots][kLanes] = {};
  float db[kSums ? kSlots : 1][kLanes] = {};
  float total[kSums ? kSlots : 1][kLanes] = {};
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int i = static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
    if (i < args.n) w[s] = V::fetch(args.w, i);
  }
  RowData<kType, kSlots> next;
  next.fetch(args, lane);
  for (int64_t row = lane; row < args.rows; row += args.lanes) {
    const RowData<kType, kSlots> data = next;
    next.fetch(args, row + args.lanes);
    float g[kSlots][kLanes];
    float h[kSlots][kLanes];
    float sum = 0;
    float sum_normal = 0;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int i = static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
      if (i >= args.n) continue;
      float weight[kLanes];
      V::unpack(w[s], weight);
      V::unpack(data.dy[s], g[s]);
      V::unpack(data.x[s], h[s]);
      for (int e = 0; e < kLanes; ++e) {
        h[s][e] = (h[s][e] - data.mean) * data.rstd;
        dw[s][e] += g[s][e] * h[s][e];
        if constexpr (kSums) db[s][e] += g[s][e];
        g[s][e] *= weight[e];
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
      for (int e = 0; e < kLanes; ++e) {
        g[s][e] = data.rstd * (g[s][e] - mean - h[s][e] * mean_normal);
      }
      if (args.more != nullptr) {
        round_vector(kType, g[s]);
        float more[kLanes];
        V::unpack(data.more[s], more);
        for (int e = 0; e < kLanes; ++e) g[s][e] += more[e];
      }
      if constexpr (kSums) {
        round_vector(kType, g[s]);
        for (int e = 0; e < kLanes; ++e) total[s][e] += g[s][e];
      }
      V::store(args.dx, row * args.n + i, g[s]);
    }
  }
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int i = static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
    if (i >= args.n) continue;
    const int64_t at = lane * args.n + i;
    Vector<DType::F32>::store(args.partial, at, dw[s]);
    if constexpr (kSums) {
      const int64_t lanes = args.lanes * args.n;
      Vector<DType::F32>::store(args.partial, lanes + at, db[s]);
      Vector<DType::F32>::store(args.partial, 2 * lanes + at, total[s]);
    }
  }
}

template <bool kSums>
void launch(const Launch& launch, RowNormGradArgs args) {
  const Tensor& x = launch.operands.at(1);
  args.dy = launch.operands.at(0).data;
  args.x = x.data;
  args.w = launch.operands.at(2).data;
  args.dx = launch.results.at(0).data;
  args.partial = static_cast<float*>(launch.workspace);
  args.rows = row_count(x);
  args.n = static_cast<int>(row_length(x));
  args.lanes = row_lanes(args.n);
  with_dtype(x.dtype, [&](auto tag) {
    with_row_shape(args.n, [&](auto warps, auto slots) {
      constexpr int kRows = kBlockRows<warps.value>;
      row_norm_grad<tag.kValue, warps.value, slots.value, kSums>
          <<<blocks_for(args.lanes, kRows), dim3(32 * warps.value, kRows), 0, stream_of(launch)>>>(
              args);
    });
  });
  const std::vector<Tensor> sums(launch.results.begin() + 1, launch.results.end());
  launch_add_partials(args.partial, args.lanes, sums, stream_of(launch));
}

}  // namespace

void launch_row_layer_norm_grad(const Launch& grad) {
  RowNormGradArgs args;
  args.mean = grad.operands.at(3).as<float>();
  args.rstd = grad.operands.at(4).as<float>();
  launch<false>(grad, args);
}

void launch_row_layer_norm_grad_sums(const Launch& grad) {
  RowNormGradArgs args;
  args.mean = grad.operands.at(3).as<float>();
  args.rstd = grad.operands.at(4).as<float>();
  if (grad.operands.size() > 5) args.more = grad.operands[5].data;
  launch<true>(grad, args);
}

void launch_row_rms_norm_grad(const Launch& grad) {
  RowNormGradArgs args;
  args.rstd = grad.operands.at(3).as<float>();
  if (grad.operands.size() > 4) args.more = grad.operands[4].data;
  launch<false>(grad, args);
}

}  // namespace weft::cuda

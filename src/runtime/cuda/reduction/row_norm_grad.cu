// Gradients of layer_norm and rms_norm on rows that stay in registers; that of layer_norm also with
// an addend to dx and sums over rows. Column sums are accumulated on the fly: lane l walks rows l,
// l + lanes, ... and a second kernel adds the lanes in order, as sum_rows does. The next row is
// fetched while the current one is processed.
#include <vector>

#include "runtime/cuda/launches.h"
#include "runtime/cuda/reduction/partials.h"
#include "runtime/cuda/reduction/row_shape.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

struct RowNormGradArgs {
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* w = nullptr;
  const void* more = nullptr;   // with kMore: added to dx
  const float* mean = nullptr;  // nullptr: rms_norm
  const float* rstd = nullptr;
  void* dx = nullptr;
  float* partial = nullptr;  // [lanes, n] of dw; with kSums also of db and of the sum of dx
  int64_t rows = 0;
  int64_t lanes = 0;
  int n = 0;
};

// A thread's inputs from one row.
template <DType kType, int kSlots, bool kMore>
struct RowData {
  using V = Vector<kType>;
  typename V::Raw dy[kSlots];
  typename V::Raw x[kSlots];
  typename V::Raw more[kMore ? kSlots : 1];
  float rstd;
  float mean;

  __device__ void fetch(const RowNormGradArgs& args, int64_t row) {
    if (row >= args.rows) return;
    rstd = args.rstd[row];
    mean = args.mean != nullptr ? args.mean[row] : 0.0f;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int i = slot_start(s);
      if (i >= args.n) continue;
      const int64_t at = row * args.n + i;
      dy[s] = V::fetch(args.dy, at);
      x[s] = V::fetch(args.x, at);
      if constexpr (kMore) more[s] = V::fetch(args.more, at);
    }
  }

  // dy and the normalised x of a slot.
  __device__ void unpack(int s, float (&g)[kLanes], float (&h)[kLanes]) const {
    V::unpack(dy[s], g);
    V::unpack(x[s], h);
    for (int e = 0; e < kLanes; ++e) h[e] = (h[e] - mean) * rstd;
  }

  // Recomputes g = dy w and h. The compiler sees dy and x as new values, or it would keep g and h.
  __device__ void make_again(int s, const typename V::Raw& w, float (&g)[kLanes],
                             float (&h)[kLanes]) {
    for (uint4& p : dy[s].part) asm volatile("" : "+r"(p.x), "+r"(p.y), "+r"(p.z), "+r"(p.w));
    for (uint4& p : x[s].part) asm volatile("" : "+r"(p.x), "+r"(p.y), "+r"(p.z), "+r"(p.w));
    float weight[kLanes];
    V::unpack(w, weight);
    unpack(s, g, h);
    for (int e = 0; e < kLanes; ++e) g[e] *= weight[e];
  }
};

// How a thread saves registers.
template <DType kType, int kWarps, int kSlots, bool kSums>
struct RegisterPolicy {
  // Rows of several warps wait at a barrier, so other rows must run meanwhile: with 128 registers
  // per thread an SM runs 512 threads at once.
  static constexpr bool kMany = kType != DType::F32 && kWarps > 1 && kSlots <= 3 && !kSums;
  static constexpr int kBlocks = kMany ? 512 / (32 * kWarps) : 1;
  // g and h are recomputed after the sums; only threads with registers to spare keep them.
  static constexpr bool kAgain = kWarps > 1 || kSlots > 3;
  // w lies in shared memory, where each thread reads only what it wrote.
  static constexpr bool kSharedWeight = kMany && kSlots == 3;
};

// Stores the lane's part of sum number `which`.
template <int kSlots>
__device__ void store_lane(const RowNormGradArgs& args, int which, int64_t lane,
                           const float (&sum)[kSlots][kLanes]) {
  const int64_t first = (which * args.lanes + lane) * args.n;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int i = slot_start(s);
    if (i < args.n) Vector<DType::F32>::store(args.partial, first + i, sum[s]);
  }
}

// With g = dy w and h the normalised x: dx = rstd (g - mean(g) - h mean(g h)); rms_norm has no
// mean(g). dw = sum over rows of dy h.
template <DType kType, int kWarps, int kSlots, bool kSums, bool kMore>
__global__ void __launch_bounds__(32 * kWarps * kBlockRows<kWarps>,
                                  RegisterPolicy<kType, kWarps, kSlots, kSums>::kBlocks)
    row_norm_grad(RowNormGradArgs args) {
  using V = Vector<kType>;
  using Policy = RegisterPolicy<kType, kWarps, kSlots, kSums>;
  constexpr bool kShared = Policy::kSharedWeight;
  __shared__ float2 partial[2][kWarps];  // of this row and the one before
  __shared__ typename V::Raw shared_w[kShared ? kSlots : 1][kShared ? 32 * kWarps : 1];
  const int64_t lane = static_cast<int64_t>(blockIdx.x) * kBlockRows<kWarps> + threadIdx.y;
  const float count = static_cast<float>(args.n);
  typename V::Raw kept_w[kShared ? 1 : kSlots];
  const auto w = [&](int s) -> typename V::Raw& {
    if constexpr (kShared) return shared_w[s][threadIdx.x];
    return kept_w[s];
  };
  float dw[kSlots][kLanes] = {};
  float db[kSums ? kSlots : 1][kLanes] = {};
  float total[kSums ? kSlots : 1][kLanes] = {};
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    if (slot_start(s) < args.n) w(s) = V::fetch(args.w, slot_start(s));
  }
  RowData<kType, kSlots, kMore> next;
  next.fetch(args, lane);
  int side = 0;
  for (int64_t row = lane; row < args.rows; row += args.lanes) {
    RowData<kType, kSlots, kMore> data = next;
    next.fetch(args, row + args.lanes);
    float g[kSlots][kLanes], h[kSlots][kLanes];
    float sum = 0;
    float sum_normal = 0;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int i = slot_start(s);
      if (i >= args.n) continue;
      float weight[kLanes];
      V::unpack(w(s), weight);
      data.unpack(s, g[s], h[s]);
      for (int e = 0; e < kLanes; ++e) {
        dw[s][e] += g[s][e] * h[s][e];
        if constexpr (kSums) db[s][e] += g[s][e];
        g[s][e] *= weight[e];
        sum += g[s][e];
        sum_normal += g[s][e] * h[s][e];
      }
    }
    const float2 sums = fast_block_sums(sum_normal, sum, partial[side]);
    side ^= 1;
    const float mean_normal = sums.x / count;
    const float mean = args.mean != nullptr ? sums.y / count : 0.0f;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int i = slot_start(s);
      if (i >= args.n) continue;
      if constexpr (Policy::kAgain) data.make_again(s, w(s), g[s], h[s]);
      for (int e = 0; e < kLanes; ++e) {
        g[s][e] = data.rstd * (g[s][e] - mean - h[s][e] * mean_normal);
      }
      if constexpr (kMore) {
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
  store_lane(args, 0, lane, dw);
  if constexpr (kSums) {
    store_lane(args, 1, lane, db);
    store_lane(args, 2, lane, total);
  }
}

template <bool kSums, bool kMore>
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
      row_norm_grad<tag.kValue, warps.value, slots.value, kSums, kMore>
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
  launch<false, false>(grad, args);
}

void launch_row_layer_norm_grad_sums(const Launch& grad) {
  RowNormGradArgs args;
  args.mean = grad.operands.at(3).as<float>();
  args.rstd = grad.operands.at(4).as<float>();
  const bool more = grad.operands.size() > 5;
  if (more) args.more = grad.operands[5].data;
  more ? launch<true, true>(grad, args) : launch<true, false>(grad, args);
}

void launch_row_rms_norm_grad(const Launch& grad) {
  RowNormGradArgs args;
  args.rstd = grad.operands.at(3).as<float>();
  launch<false, false>(grad, args);
}

}  // namespace weft::cuda

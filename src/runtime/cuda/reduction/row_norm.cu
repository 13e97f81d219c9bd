// layer_norm and rms_norm on rows that stay in registers: each element is read once.
#include "runtime/cuda/launches.h"
#include "runtime/cuda/reduction/row_shape.h"
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
  int64_t rows = 0;
  int n = 0;
  float eps = 0;
};

// Threads past the end of the row hold zeros.
template <DType kType, int kWarps, int kSlots>
__global__ void row_norm(RowNormArgs args) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kBlockRows<kWarps> + threadIdx.y;
  if (row >= args.rows) return;
  const int64_t first = row * args.n;
  const float count = static_cast<float>(args.n);
  float x[kSlots][kLanes];
  float sum = 0;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int i = slot_start(s);
    for (int e = 0; e < kLanes; ++e) x[s][e] = 0;
    if (i >= args.n) continue;
    Vector<kType>::load(args.x, first + i, x[s]);
    for (int e = 0; e < kLanes; ++e) sum += x[s][e];
  }
  const float mean = args.mean != nullptr ? fast_block_sum<kWarps>(sum) / count : 0.0f;
  float squares = 0;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int i = slot_start(s);
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
    const int i = slot_start(s);
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

}  // namespace

void launch_row_norm(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  RowNormArgs args;
  args.x = x.data;
  args.w = launch.operands.at(1).data;
  if (launch.operands.size() > 2) args.bias = launch.operands[2].data;
  args.y = launch.results.at(0).data;
  const bool layer_norm = launch.results.size() > 2;
  if (layer_norm) args.mean = launch.results[1].as<float>();
  args.rstd = launch.results.back().as<float>();
  args.rows = row_count(x);
  args.n = static_cast<int>(row_length(x));
  args.eps = static_cast<float>(launch.call->double_attr("eps"));
  with_dtype(x.dtype, [&](auto tag) {
    with_row_shape(args.n, [&](auto warps, auto slots) {
      constexpr int kRows = kBlockRows<warps.value>;
      row_norm<tag.kValue, warps.value, slots.value>
          <<<blocks_for(args.rows, kRows), dim3(32 * warps.value, kRows), 0, stream_of(launch)>>>(
              args);
    });
  });
}

}  // namespace weft::cuda

// Multiplies one panel by itself repeatedly: loads and stores are hidden behind the multiply-adds.
#include "runtime/cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>

#include "runtime/cpu/gemm.h"

namespace weft {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCalls = 32;  // per burst, short enough that some are not interrupted
constexpr auto kDuration = std::chrono::milliseconds(20);  // the clock rises under load

struct AlignedDelete {
  void operator()(float* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using Floats = std::unique_ptr<float[], AlignedDelete>;

Floats zeros(int64_t count) {
  return Floats(new (std::align_val_t{64}) float[static_cast<size_t>(count)]());
}

double measure(const GemmVariant& variant) {
  const Floats a = zeros(variant.panel_rows * packed_depth(variant, kGemmDepth));
  const Floats b = zeros(variant.panel_cols);
  const Floats c = zeros(variant.panel_rows * variant.panel_cols);
  const PanelMatmul matmul{.depth = kGemmDepth,
                           .a = a.get(),
                           .b = b.get(),
                           .a_stride = variant.panel_rows,
                           .b_stride = 0,  // the same columns at every depth
                           .c = c.get(),
                           .c_stride = variant.panel_cols,
                           .rows = variant.panel_rows,
                           .cols = variant.panel_cols};
  const auto flops =
      static_cast<double>(kCalls * 2 * variant.panel_rows * variant.panel_cols * kGemmDepth);
  double best = 0;
  const Clock::time_point end = Clock::now() + kDuration;
  do {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kCalls; ++i) variant.multiply(matmul);
    best = std::max(best, flops / std::chrono::duration<double>(Clock::now() - start).count());
  } while (Clock::now() < end);
  return best;
}

}  // namespace

double core_peak_flops(DType dtype) {
  if (dtype == DType::BF16) {
    static const double bf16 = measure(gemm_variant(DType::BF16, DType::BF16));
    return bf16;
  }
  static const double f32 = measure(gemm_variant(DType::F32, DType::F32));
  return f32;
}

}  // namespace weft

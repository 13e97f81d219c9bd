#include "runtime/cpu/gemm.h"

#include <algorithm>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/error.h"
#include "runtime/cpu/elements.h"

namespace weft {

namespace {

const GemmVariant& best_f32() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return gemm_avx512();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return gemm_avx2();
#endif
  return gemm_portable();
}

const GemmVariant& best_bf16() {
#if defined(__x86_64__)
  if (amx_allowed()) return gemm_amx();
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw")) {
    return gemm_avx512_bf16();
  }
#endif
  return best_f32();
}

GemmElement element(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return GemmElement::F32;
    case DType::BF16:
      return GemmElement::BF16;
    case DType::F16:
      return GemmElement::F16;
    default:
      CHECK(false, "no matmul of ", dtype_name(dtype));
  }
}

}  // namespace

bool amx_allowed() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) return false;
  constexpr unsigned kTiles = 1u << 24, kBF16 = 1u << 22;  // bits of edx returned by leaf 7
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kTiles) == 0 || (edx & kBF16) == 0) return false;
  // A process must request permission for tile state; headers of older systems do not define this.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

const GemmVariant& gemm_variant(DType a, DType b) {
  static const GemmVariant& f32 = best_f32();
  static const GemmVariant& bf16 = best_bf16();
  return a == DType::BF16 && b == DType::BF16 ? bf16 : f32;
}

MatrixView from(const MatrixView& view, int64_t row, int64_t col) {
  const int64_t offset = row * view.row_stride + col * view.col_stride;
  MatrixView moved = view;
  moved.data = static_cast<const char*>(view.data) + offset * dtype_bytes(view.dtype);
  return moved;
}

void pack_left(const GemmVariant& variant, const MatrixView& a, int64_t rows, int64_t depth,
               float* packed) {
  variant.pack_rows({a.data, element(a.dtype), a.row_stride, a.col_stride, rows, depth}, packed);
}

void pack_right(const GemmVariant& variant, const MatrixView& b, int64_t depth, int64_t cols,
                float* packed) {
  variant.pack_cols({b.data, element(b.dtype), b.col_stride, b.row_stride, cols, depth}, packed);
}

namespace {

// How to step through a packed factor: floats between panel starts, and between steps of the depth.
struct Walk {
  const float* data;
  int64_t lane, step;
};

// Prefetches the rows of Ahead line by line, evenly spread over the panels of a matmul. Small
// matmuls, which have nothing to prefetch, pay nothing.
class Fetcher {
 public:
  Fetcher(const Ahead& ahead, const GemmVariant& variant, const GemmShape& shape) : ahead_(ahead) {
    if (ahead.rows == 0) return;
    lines_ = ceil_div(ahead.row_bytes, kLine);
    each_ = ceil_div(lines_ * ahead.rows, ceil_div(shape.rows, variant.panel_rows) *
                                              ceil_div(shape.cols, variant.panel_cols));
  }

  void fetch() {
    for (int64_t i = 0; i < each_ && row_ < ahead_.rows; ++i) {
      __builtin_prefetch(ahead_.data + row_ * ahead_.stride + line_ * kLine, 0, 2);
      if (++line_ < lines_) continue;
      line_ = 0;
      ++row_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  Ahead ahead_;
  int64_t lines_ = 0, each_ = 0;
  int64_t row_ = 0, line_ = 0;
};

void multiply_panels(const GemmVariant& variant, void (*multiply)(const PanelMatmul&),
                     const GemmShape& shape, Walk a, Walk b, float* c, int64_t c_stride,
                     GemmMode mode, const Ahead& ahead = {}) {
  Fetcher fetcher(ahead, variant, shape);
  // A panel of rows stays in the L1 cache while the columns stream by.
  for (int64_t row = 0; row < shape.rows; row += variant.panel_rows) {
    for (int64_t col = 0; col < shape.cols; col += variant.panel_cols) {
      fetcher.fetch();
      multiply({.depth = shape.depth,
                .a = a.data + row * a.lane,
                .b = b.data + col * b.lane,
                .a_stride = a.step,
                .b_stride = b.step,
                .c = c + row * c_stride + col,
                .c_stride = c_stride,
                .rows = std::min(variant.panel_rows, shape.rows - row),
                .cols = std::min(variant.panel_cols, shape.cols - col),
                .add = mode == GemmMode::Add});
    }
  }
}

Walk packed_rows(const GemmVariant& variant, PackedFactor a) {
  return {a.data, a.lane_floats, variant.panel_rows};
}
Walk packed_cols(const GemmVariant& variant, PackedFactor b) {
  return {b.data, b.lane_floats, variant.panel_cols};
}

}  // namespace

void multiply_packed(const GemmVariant& variant, const GemmShape& shape, PackedFactor a,
                     PackedFactor b, float* c, int64_t c_stride, GemmMode mode,
                     const Ahead& ahead) {
  multiply_panels(variant, variant.multiply, shape, packed_rows(variant, a),
                  packed_cols(variant, b), c, c_stride, mode, ahead);
}

void multiply_transposed(const GemmVariant& variant, const GemmShape& shape, const float* a,
                         int64_t a_stride, PackedFactor b, float* c, int64_t c_stride,
                         GemmMode mode, const Ahead& ahead) {
  multiply_panels(variant, variant.multiply, shape, {a, 1, a_stride}, packed_cols(variant, b), c,
                  c_stride, mode, ahead);
}

void multiply_left_tile(const GemmVariant& variant, const GemmShape& shape, const float* a,
                        PackedFactor b, float* c, int64_t c_stride, GemmMode mode) {
  multiply_panels(variant, variant.multiply_tile, shape, {a, kTileStride, 1},
                  packed_cols(variant, b), c, c_stride, mode);
}

void multiply_right_tile(const GemmVariant& variant, const GemmShape& shape, PackedFactor a,
                         const float* b, float* c, int64_t c_stride, GemmMode mode) {
  multiply_panels(variant, variant.multiply, shape, packed_rows(variant, a), {b, 1, kTileStride}, c,
                  c_stride, mode);
}

}  // namespace weft

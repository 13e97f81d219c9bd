#include "runtime/cpu/gemm.h"

#include <algorithm>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/error.h"

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
      CHECK(false, "a matrix product met ", dtype_name(dtype));
  }
}

}  // namespace

bool amx_allowed() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) return false;
  constexpr unsigned kTiles = 1u << 24, kBF16 = 1u << 22;  // of what leaf 7 returns in edx
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kTiles) == 0 || (edx & kBF16) == 0) return false;
  // A process asks for the memory of its tiles; the headers of older systems do not name this.
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

// A factor by the floats from lane to lane of its panels' starts.
struct Walk {
  const float* data;
  int64_t lane;
};

void multiply_panels(const GemmVariant& variant, void (*multiply)(const PanelProduct&),
                     const GemmShape& shape, Walk a, Walk b, int64_t b_stride, float* c,
                     int64_t c_stride, GemmMode mode) {
  // A panel of rows stays in the nearest cache while the columns pass by.
  for (int64_t row = 0; row < shape.rows; row += variant.panel_rows) {
    for (int64_t col = 0; col < shape.cols; col += variant.panel_cols) {
      multiply({.depth = shape.depth,
                .a = a.data + row * a.lane,
                .b = b.data + col * b.lane,
                .b_stride = b_stride,
                .c = c + row * c_stride + col,
                .c_stride = c_stride,
                .rows = std::min(variant.panel_rows, shape.rows - row),
                .cols = std::min(variant.panel_cols, shape.cols - col),
                .add = mode == GemmMode::Add});
    }
  }
}

}  // namespace

void multiply_packed(const GemmVariant& variant, const GemmShape& shape, PackedFactor a,
                     PackedFactor b, float* c, int64_t c_stride, GemmMode mode) {
  multiply_panels(variant, variant.multiply, shape, {a.data, a.lane_floats},
                  {b.data, b.lane_floats}, variant.panel_cols, c, c_stride, mode);
}

void multiply_left_tile(const GemmVariant& variant, const GemmShape& shape, const float* a,
                        PackedFactor b, float* c, int64_t c_stride, GemmMode mode) {
  multiply_panels(variant, variant.multiply_tile, shape, {a, kTileStride}, {b.data, b.lane_floats},
                  variant.panel_cols, c, c_stride, mode);
}

void multiply_right_tile(const GemmVariant& variant, const GemmShape& shape, PackedFactor a,
                         const float* b, float* c, int64_t c_stride, GemmMode mode) {
  multiply_panels(variant, variant.multiply, shape, {a.data, a.lane_floats}, {b, 1}, kTileStride, c,
                  c_stride, mode);
}

}  // namespace weft

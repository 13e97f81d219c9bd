// Matmuls of packed panels. Every element of the result is a sum over blocks of kGemmDepth terms:
// each block is summed from its first term to its last and then added to the blocks before it. So
// the bits depend neither on tiles nor on the number of threads. The instruction set is chosen when
// the program starts (gemm_variant.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "graph/type.h"
#include "runtime/cpu/gemm_variant.h"

namespace weft {

inline constexpr int64_t kGemmDepth = 384;  // terms that are packed and summed at a time
// A packed factor has at most this many lanes of padding: the widest panel that is not full.
inline constexpr int64_t kGemmPadding = 32;
// Multiples of every variant's panel_rows, and of those of f32.
inline constexpr int64_t kGemmPanelRows = 96;
inline constexpr int64_t kGemmF32PanelRows = 12;

// Element (r, c) lies at data[r * row_stride + c * col_stride]; one of the strides is 1.
struct MatrixView {
  const void* data = nullptr;
  DType dtype = DType::F32;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

inline MatrixView matrix(const void* data, DType dtype, int64_t row_stride) {
  return {data, dtype, row_stride, 1};
}

inline MatrixView transposed(const MatrixView& view) {
  return {view.data, view.dtype, view.col_stride, view.row_stride};
}

// The view that starts at element (row, col).
MatrixView from(const MatrixView& view, int64_t row, int64_t col);

struct GemmShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
};

enum class GemmMode { Store, Add };

// The fastest variant that this machine supports for factors of these dtypes.
const GemmVariant& gemm_variant(DType a, DType b);

// Whether the processor multiplies tiles of bf16 (AMX) and the system permits this process to do
// so.
bool amx_allowed();

// Packs rows x depth of a left factor, or depth x cols of a right one; depth is at most kGemmDepth.
// The packed factor is aligned to 64 bytes and has room for full panels.
void pack_left(const GemmVariant& variant, const MatrixView& a, int64_t rows, int64_t depth,
               float* packed);
void pack_right(const GemmVariant& variant, const MatrixView& b, int64_t depth, int64_t cols,
                float* packed);

// Floats per lane of a packed factor of this depth, and the maximum over all variants.
inline int64_t packed_depth(const GemmVariant& variant, int64_t depth) {
  const int64_t terms = variant.terms * variant.step;
  return (depth + terms - 1) / terms * variant.step;
}
inline int64_t largest_packed_depth(int64_t depth) {
  constexpr int64_t kLargestStep = 16;
  return std::max(depth, kLargestStep);
}

// A packed factor, or its first lanes, packed with `lane_floats` floats per lane; a matmul may use
// only part of the depth.
struct PackedFactor {
  const float* data = nullptr;
  int64_t lane_floats = 0;
};

// Rows of memory, `stride` bytes apart, that are prefetched while a matmul runs.
struct Ahead {
  const char* data = nullptr;
  int64_t row_bytes = 0, stride = 0, rows = 0;
};

// c = a * b, or c += a * b; c is row-major with `c_stride` floats from row to row. Either factor
// may be a tile instead: rows of kTileStride floats, enough of them for full panels. A transposed
// left factor of f32 may be used without packing, `a_stride` floats from one step of the depth to
// the next, if shape.rows is a multiple of panel_rows.
void multiply_packed(const GemmVariant& variant, const GemmShape& shape, PackedFactor a,
                     PackedFactor b, float* c, int64_t c_stride, GemmMode mode,
                     const Ahead& ahead = {});
void multiply_transposed(const GemmVariant& variant, const GemmShape& shape, const float* a,
                         int64_t a_stride, PackedFactor b, float* c, int64_t c_stride,
                         GemmMode mode, const Ahead& ahead);
void multiply_left_tile(const GemmVariant& variant, const GemmShape& shape, const float* a,
                        PackedFactor b, float* c, int64_t c_stride, GemmMode mode);
void multiply_right_tile(const GemmVariant& variant, const GemmShape& shape, PackedFactor a,
                         const float* b, float* c, int64_t c_stride, GemmMode mode);

}  // namespace weft

// Matrix products of packed panels. Every element of a product is the sum over blocks of kGemmDepth
// terms, each block summed from its first term to its last and then added to the blocks before it,
// so the bits depend neither on tiles nor on the number of threads. Which instructions multiply is
// chosen when the program starts (gemm_variant.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "graph/type.h"
#include "runtime/cpu/gemm_variant.h"

namespace weft {

inline constexpr int64_t kGemmDepth = 384;  // terms that are packed and summed at a time
// A packed factor has this many lanes more at most: the widest panel that is not full.
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

// The fastest variant that this machine runs for factors of these dtypes.
const GemmVariant& gemm_variant(DType a, DType b);

// Whether the processor multiplies tiles of bf16 (AMX) and the system lets this process do so.
bool amx_allowed();

// Packs rows x depth of a left factor, or depth x cols of a right one; depth is at most kGemmDepth.
// The packed factor is aligned to 64 bytes and has room for the lanes of whole panels.
void pack_left(const GemmVariant& variant, const MatrixView& a, int64_t rows, int64_t depth,
               float* packed);
void pack_right(const GemmVariant& variant, const MatrixView& b, int64_t depth, int64_t cols,
                float* packed);

// Floats of one lane of a packed factor of this depth, and the most that any variant takes.
inline int64_t packed_depth(const GemmVariant& variant, int64_t depth) {
  const int64_t terms = variant.terms * variant.step;
  return (depth + terms - 1) / terms * variant.step;
}
inline int64_t largest_packed_depth(int64_t depth) {
  constexpr int64_t kLargestStep = 16;
  return std::max(depth, kLargestStep);
}

// A packed factor, or the first lanes of one, that was packed to `lane_floats` floats per lane; a
// product may use less of the depth.
struct PackedFactor {
  const float* data = nullptr;
  int64_t lane_floats = 0;
};

// Rows of memory, `stride` bytes apart, that are fetched into a cache while a product is computed.
struct Ahead {
  const char* data = nullptr;
  int64_t row_bytes = 0, stride = 0, rows = 0;
};

// c = a * b, or c += a * b; c is row-major with `c_stride` floats from row to row. Either factor
// may be a tile instead: rows of kTileStride floats, as many as whole panels take. A transposed
// left factor of f32 may lie as it is, `a_stride` floats from one step of the depth to the next,
// where shape.rows is a multiple of panel_rows.
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

// The matrix product of one tile by one thread: both factors are packed, converted to f32, into the
// thread's scratch memory, and a register-blocked loop multiplies the packed panels. Every element
// of the product is the sum over blocks of kGemmDepth terms, each block summed from its first term
// to its last, so the bits depend neither on the tile nor on the width of the machine's vectors.
#pragma once

#include <cstdint>

#include "graph/type.h"

namespace weft {

inline constexpr int64_t kGemmRows = 96;    // largest tile
inline constexpr int64_t kGemmCols = 256;   // largest tile
inline constexpr int64_t kGemmDepth = 192;  // terms that are packed and summed at a time
inline constexpr int64_t kGemmScratchFloats = (kGemmRows + kGemmCols) * kGemmDepth;

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
  int64_t rows = 0;   // at most kGemmRows
  int64_t cols = 0;   // at most kGemmCols
  int64_t depth = 0;  // any
};

enum class GemmMode { Store, Add };

// c = a * b, or c += a * b; c is row-major with `c_stride` floats from row to row. `scratch` has
// kGemmScratchFloats and is aligned to 64 bytes.
void gemm(const GemmShape& shape, const MatrixView& a, const MatrixView& b, float* c,
          int64_t c_stride, GemmMode mode, float* scratch);

}  // namespace weft

#include "runtime/cpu/gemm_tiles.h"

#include <algorithm>

#include "runtime/cpu/elements.h"

namespace weft {

namespace {

// Column `col` of the block that starts with term `start` and has `depth` terms.
float* column(const GemmVariant& variant, const PackedBlocks& packed, int64_t start, int64_t depth,
              int64_t col) {
  return packed.data + start / kGemmDepth * packed.block_floats +
         col * packed_depth(variant, depth);
}

// Whether `rows` rows of a left factor need no packing because each step of their depth is
// contiguous.
bool lies_in_panels(const GemmVariant& variant, const MatrixView& a, int64_t rows) {
  return a.row_stride == 1 && a.dtype == DType::F32 && rows % variant.panel_rows == 0;
}

}  // namespace

int64_t pack_parts(int64_t terms, int64_t cols) {
  return ceil_div(cols, kPackCols) * ceil_div(terms, kGemmDepth);
}

void pack_part(const GemmVariant& variant, const MatrixView& b, int64_t terms, int64_t cols,
               const PackedBlocks& packed, int64_t part) {
  const int64_t across = ceil_div(cols, kPackCols);
  const int64_t start = part / across * kGemmDepth, col = part % across * kPackCols;
  const int64_t depth = std::min(kGemmDepth, terms - start);
  pack_right(variant, from(b, start, col), depth, std::min(kPackCols, cols - col),
             column(variant, packed, start, depth, col));
}

Ahead ahead_of(const MatrixView& a, int64_t rows, int64_t terms) {
  const int64_t bytes = dtype_bytes(a.dtype);
  const char* data = static_cast<const char*>(a.data);
  return a.row_stride == 1 ? Ahead{data, rows * bytes, a.col_stride * bytes, terms}
                           : Ahead{data, terms * bytes, a.row_stride * bytes, rows};
}

void multiply_tile(const GemmVariant& variant, const TileMatmul& tile, float* scratch) {
  GemmShape shape = tile.shape;
  int64_t start = 0;
  do {
    shape.depth = std::min(kGemmDepth, tile.shape.depth - start);
    const MatrixView a = from(tile.a, 0, start);
    const int64_t lane = packed_depth(variant, shape.depth);
    const PackedFactor b{column(variant, tile.b, start, shape.depth, tile.col), lane};
    const GemmMode mode = start == 0 ? tile.mode : GemmMode::Add;
    start += kGemmDepth;
    const int64_t left = tile.shape.depth - start;
    const Ahead ahead =
        left > 0 ? ahead_of(from(tile.a, 0, start), shape.rows, std::min(kGemmDepth, left))
                 : tile.next;
    if (lies_in_panels(variant, a, shape.rows)) {
      multiply_transposed(variant, shape, static_cast<const float*>(a.data), a.col_stride, b,
                          tile.c, tile.c_stride, mode, ahead);
    } else {
      pack_left(variant, a, shape.rows, shape.depth, scratch);
      multiply_packed(variant, shape, {scratch, lane}, b, tile.c, tile.c_stride, mode, ahead);
    }
  } while (start < tile.shape.depth);
}

}  // namespace weft

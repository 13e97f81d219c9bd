// Tiles of matmuls whose right factor is packed in blocks of kGemmDepth terms. Threads share the
// packing; then each takes tiles of the result and packs the rows of the left factor that a tile
// needs, unless they already form panels.
#pragma once

#include <cstdint>

#include "runtime/cpu/gemm.h"

namespace weft {

inline constexpr int64_t kTileRows = 96;
inline constexpr int64_t kTileCols = 384;
inline constexpr int64_t kPackCols = 96;  // packed by one thread at a time
// Of a thread's scratch memory: a packed left factor, and one tile of the result.
inline constexpr int64_t kLeftFloats = (kTileRows + kGemmPadding) * kGemmDepth;
inline constexpr int64_t kTileFloats = kTileRows * kTileCols;
// Packed right factors of this size fit a shared cache.
inline constexpr int64_t kChunkFloats = 2 << 20;

// A packed right factor; its blocks of terms are `block_floats` apart.
struct PackedBlocks {
  float* data = nullptr;
  int64_t block_floats = 0;
};

// Packing terms x cols of b is divided into parts that threads share.
int64_t pack_parts(int64_t terms, int64_t cols);
void pack_part(const GemmVariant& variant, const MatrixView& b, int64_t terms, int64_t cols,
               const PackedBlocks& packed, int64_t part);

// Prefetches rows x terms of a left factor.
Ahead ahead_of(const MatrixView& a, int64_t rows, int64_t terms);

// c = a * b, or c += a * b, for the columns of b from `col` on, a multiple of kPackCols.
struct TileMatmul {
  MatrixView a;
  GemmShape shape;
  PackedBlocks b;
  int64_t col = 0;
  float* c = nullptr;
  int64_t c_stride = 0;
  GemmMode mode = GemmMode::Store;
  Ahead next = {};  // prefetched during the last block
};

// `scratch` has room for kLeftFloats.
void multiply_tile(const GemmVariant& variant, const TileMatmul& tile, float* scratch);

}  // namespace weft

// Matmuls of bf16 in the processor's tile registers: an instruction multiplies 16 rows by 16
// columns over 32 terms, and four sums of that size share their loads. A left panel is packed in
// steps of 32 terms, each of them rows of 16 pairs; a right one as pairs. Compiled with -mamx-tile
// -mamx-bf16 and AVX-512.
#include "runtime/cpu/gemm_pairs.h"

namespace weft {

namespace {

constexpr int64_t kTile = 16;  // rows, columns, and pairs of the depth
constexpr int64_t kTileTerms = 2 * kTile;
constexpr int64_t kPanel = 2 * kTile;
constexpr int64_t kTileElements = kTile * kTile;

int64_t steps_of(int64_t depth) {
  return (depth + kTileTerms - 1) / kTileTerms;
}

int64_t at_most(int64_t value, int64_t limit) {
  return value < limit ? value : limit;
}

__mmask16 first_of_16(int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1);
}

__mmask32 first_of_32(int64_t n) {
  return static_cast<__mmask32>((uint64_t{1} << n) - 1);
}

// Copies up to 16 rows of up to 32 contiguous terms.
void copy_rows(const uint16_t* from, int64_t row_stride, int64_t rows, int64_t terms, float* to) {
  const __mmask32 inside = first_of_32(terms);
  for (int64_t row = 0; row < kTile; ++row) {
    const __m512i pairs = row < rows ? _mm512_maskz_loadu_epi16(inside, from + row * row_stride)
                                     : _mm512_setzero_si512();
    _mm512_store_si512(to + row * kTile, pairs);
  }
}

// The same where the rows are contiguous for each term.
void turn_rows(const uint16_t* from, int64_t term_stride, int64_t rows, int64_t terms, float* to) {
  const __mmask16 inside = first_of_16(rows);
  const auto term = [&](int64_t p) {
    return p < terms
               ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(inside, from + p * term_stride))
               : _mm512_setzero_si512();
  };
  Floats16 block[kTile];
#pragma GCC unroll 16
  for (int64_t p = 0; p < kTile; ++p) {
    block[p] =
        _mm512_castsi512_ps(_mm512_or_si512(term(2 * p), _mm512_slli_epi32(term(2 * p + 1), 16)));
  }
  transpose<kTile>(block);
#pragma GCC unroll 16
  for (int64_t row = 0; row < kTile; ++row) _mm512_store_ps(to + row * kTile, block[row]);
}

void pack_tiles(const PackSource& source, float* packed) {
  const auto* data = static_cast<const uint16_t*>(source.data);
  const int64_t steps = steps_of(source.depth);
  for (int64_t lane = 0; lane < source.lanes; lane += kTile) {
    const uint16_t* from = data + lane * source.lane_stride;
    const int64_t rows = at_most(source.lanes - lane, kTile);
    float* to = packed + lane / kPanel * kPanel * steps * kTile + lane % kPanel * kTile;
    for (int64_t step = 0; step < steps; ++step, to += 2 * kTileElements) {
      const int64_t terms = at_most(source.depth - step * kTileTerms, kTileTerms);
      if (source.depth_stride == 1) {
        copy_rows(from + step * kTileTerms, source.lane_stride, rows, terms, to);
      } else {
        turn_rows(from + step * kTileTerms * source.depth_stride, source.depth_stride, rows, terms,
                  to);
      }
    }
  }
}

// The configuration of the eight tiles, in the processor's format.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);

// Tiles keep their configuration for the lifetime of a thread.
void shape_tiles() {
  static thread_local bool shaped = false;
  if (shaped) return;
  const TileShapes shapes;
  _tile_loadconfig(&shapes);
  shaped = true;
}

// c += the matmul of one or two tiles of rows and of columns; c is loaded first if `add`, else it
// starts from zero. The intrinsics do not tell the compiler what memory they read.
template <bool kTwoRows, bool kTwoCols>
void sum_tiles(const PanelMatmul& matmul, float* c, int64_t c_stride, bool add) {
  const int64_t c_bytes = c_stride * static_cast<int64_t>(sizeof(float));
  const int64_t b_bytes = matmul.b_stride * static_cast<int64_t>(sizeof(float));
  constexpr int64_t kRowBytes = kTile * sizeof(float);
  float* below = c + kTile * c_stride;
  asm volatile("" ::: "memory");
  if (add) {
    _tile_loadd(0, c, c_bytes);
    if constexpr (kTwoCols) _tile_loadd(1, c + kTile, c_bytes);
    if constexpr (kTwoRows) _tile_loadd(2, below, c_bytes);
    if constexpr (kTwoRows && kTwoCols) _tile_loadd(3, below + kTile, c_bytes);
  } else {
    _tile_zero(0);
    if constexpr (kTwoCols) _tile_zero(1);
    if constexpr (kTwoRows) _tile_zero(2);
    if constexpr (kTwoRows && kTwoCols) _tile_zero(3);
  }
  const float* a = matmul.a;
  const float* b = matmul.b;
  for (int64_t step = steps_of(matmul.depth); step > 0; --step) {
    _tile_loadd(4, a, kRowBytes);
    _tile_loadd(6, b, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoCols) {
      _tile_loadd(7, b + kTile, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoRows) {
      _tile_loadd(5, a + kTileElements, kRowBytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kTwoRows && kTwoCols) _tile_dpbf16ps(3, 5, 7);
    a += 2 * kTileElements;
    b += kTile * matmul.b_stride;
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (kTwoCols) _tile_stored(1, c + kTile, c_bytes);
  if constexpr (kTwoRows) _tile_stored(2, below, c_bytes);
  if constexpr (kTwoRows && kTwoCols) _tile_stored(3, below + kTile, c_bytes);
}

// A partial panel is computed in a buffer, in full tiles.
template <bool kTwoRows, bool kTwoCols>
void sum_part(const PanelMatmul& matmul) {
  constexpr int64_t kRows = kTwoRows ? kPanel : kTile;
  constexpr int64_t kCols = kTwoCols ? kPanel : kTile;
  if (matmul.rows == kRows && matmul.cols == kCols) {
    return sum_tiles<kTwoRows, kTwoCols>(matmul, matmul.c, matmul.c_stride, matmul.add);
  }
  alignas(64) float full[kRows * kCols] = {};
  for (int64_t row = 0; matmul.add && row < matmul.rows; ++row) {
    for (int64_t i = 0; i < matmul.cols; ++i) {
      full[row * kCols + i] = matmul.c[row * matmul.c_stride + i];
    }
  }
  sum_tiles<kTwoRows, kTwoCols>(matmul, full, kCols, matmul.add);
  for (int64_t row = 0; row < matmul.rows; ++row) {
    for (int64_t i = 0; i < matmul.cols; ++i) {
      matmul.c[row * matmul.c_stride + i] = full[row * kCols + i];
    }
  }
}

void multiply_tiles(const PanelMatmul& matmul) {
  shape_tiles();
  if (matmul.rows > kTile) {
    return matmul.cols > kTile ? sum_part<true, true>(matmul) : sum_part<true, false>(matmul);
  }
  return matmul.cols > kTile ? sum_part<false, true>(matmul) : sum_part<false, false>(matmul);
}

}  // namespace

const GemmVariant& gemm_amx() {
  static constexpr GemmVariant kVariant{.name = "amx",
                                        .panel_rows = kPanel,
                                        .panel_cols = kPanel,
                                        .terms = 2,
                                        .step = kTile,
                                        .pack_rows = pack_tiles,
                                        .pack_cols = pack_pairs<kPanel, kTile>,
                                        .multiply = multiply_tiles};
  return kVariant;
}

}  // namespace weft

// Packing and multiplying, written once for every vector width. A variant's file includes this
// inside its own namespace, compiled with its own flags: everything here is local to the file. `V`
// provides the vector type `Reg` of kLanes floats and its operations.
#pragma once

#include <cstdint>

#include "runtime/cpu/gemm_variant.h"

namespace weft {
namespace {

typedef float Floats4 __attribute__((vector_size(16)));
typedef float Floats8 __attribute__((vector_size(32)));
typedef float Floats16 __attribute__((vector_size(64)));

// The first lanes of a vector type without masks.
template <class Vector>
struct LaneByLane {
  static Vector load_first(const float* from, int lanes) {
    Vector value{};
    for (int i = 0; i < lanes; ++i) value[i] = from[i];
    return value;
  }
  static void store_first(float* to, Vector value, int lanes) {
    for (int i = 0; i < lanes; ++i) to[i] = value[i];
  }
};

// Interleaves the lanes of a and b: the lower halves into `first`, the upper into `second`.
[[gnu::always_inline]] inline void interleave(Floats4 a, Floats4 b, Floats4& first,
                                              Floats4& second) {
  first = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  second = __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
[[gnu::always_inline]] inline void interleave(Floats8 a, Floats8 b, Floats8& first,
                                              Floats8& second) {
  first = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  second = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
[[gnu::always_inline]] inline void interleave(Floats16 a, Floats16 b, Floats16& first,
                                              Floats16& second) {
  first = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  second =
      __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// Interleaving the halves of the rows log2(n) times transposes an n x n block.
template <int kLanes, class Reg>
[[gnu::always_inline]] inline void transpose(Reg (&rows)[kLanes]) {
#pragma GCC unroll 4
  for (int stage = 1; stage < kLanes; stage *= 2) {
    Reg mixed[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      interleave(rows[i], rows[i + kLanes / 2], mixed[2 * i], mixed[2 * i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = mixed[i];
  }
}

// Transposes kLanes steps of the depth of `lanes` lanes, at most kLanes, into columns from `lane`
// on.
template <class V, int kWidth, class Load>
[[gnu::always_inline]] inline void pack_block(const typename Load::Stored* source,
                                              int64_t lane_stride, int64_t lanes, int lane,
                                              float* packed) {
  constexpr int kLanes = V::kLanes;
  typename V::Reg block[kLanes];
  if (lanes >= kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) block[i] = Load::vector(source + i * lane_stride);
  } else {
    for (int i = 0; i < kLanes; ++i) {
      block[i] = i < lanes ? Load::vector(source + i * lane_stride) : V::zero();
    }
  }
  transpose<kLanes>(block);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    float* to = packed + i * kWidth + lane;
    if (lane + kLanes <= kWidth) {
      V::store(to, block[i]);
    } else {
      V::store_first(to, block[i], kWidth - lane);
    }
  }
}

// Copies depth steps [begin, end) of a full panel whose lanes are contiguous.
template <class V, int kWidth, class Load>
void copy_panel(const typename Load::Stored* source, int64_t depth_stride, int64_t begin,
                int64_t end, float* packed) {
  constexpr int kLanes = V::kLanes;
  for (int64_t p = begin; p < end; ++p) {
    int i = 0;
#pragma GCC unroll 4
    for (; i + kLanes <= kWidth; i += kLanes) {
      V::store(packed + p * kWidth + i, Load::vector(source + p * depth_stride + i));
    }
    if (i < kWidth) {
      V::store_first(packed + p * kWidth + i,
                     Load::template first<kWidth % kLanes>(source + p * depth_stride + i),
                     kWidth % kLanes);
    }
  }
}

// Packs one panel of kWidth lanes. `Load` reads floats from the stored type.
template <class V, int kWidth, class Load>
void pack_panel(const typename Load::Stored* source, const PackSource& s, int64_t lanes,
                float* packed) {
  constexpr int kLanes = V::kLanes;
  if (lanes < kWidth) {
    for (int64_t i = 0; i < s.depth * kWidth; ++i) packed[i] = 0;
  }
  int64_t p = 0;
  if (s.depth_stride == 1) {
    for (; p + kLanes <= s.depth; p += kLanes) {
#pragma GCC unroll 4
      for (int lane = 0; lane < kWidth; lane += kLanes) {
        if (lane >= lanes) continue;
        pack_block<V, kWidth, Load>(source + lane * s.lane_stride + p, s.lane_stride, lanes - lane,
                                    lane, packed + p * kWidth);
      }
    }
  }
  for (; p < s.depth; ++p) {
    for (int64_t i = 0; i < lanes; ++i) {
      packed[p * kWidth + i] = Load::scalar(source[i * s.lane_stride + p * s.depth_stride]);
    }
  }
}

template <class V, int kWidth, class Load>
void pack_as(const PackSource& source, float* packed) {
  const auto* data = static_cast<const typename Load::Stored*>(source.data);
  int64_t lane = 0;
  if (source.lane_stride == 1) {
    // A few steps of the depth at a time, so that two panels reuse a cache line.
    constexpr int64_t kSteps = 16;
    lane = source.lanes / kWidth * kWidth;
    for (int64_t p = 0; p < source.depth; p += kSteps) {
      const int64_t end = p + kSteps < source.depth ? p + kSteps : source.depth;
      for (int64_t i = 0; i < lane; i += kWidth) {
        copy_panel<V, kWidth, Load>(data + i, source.depth_stride, p, end,
                                    packed + i * source.depth);
      }
    }
  }
  for (; lane < source.lanes; lane += kWidth) {
    const int64_t lanes = source.lanes - lane < kWidth ? source.lanes - lane : kWidth;
    pack_panel<V, kWidth, Load>(data + lane * source.lane_stride, source, lanes,
                                packed + lane * source.depth);
  }
}

// The first kCount lanes, read one by one, where the memory after them must not be accessed.
template <class V, int kCount, class Stored>
[[gnu::always_inline]] inline typename V::Reg first_scalars(const Stored* from,
                                                            float (*scalar)(Stored)) {
  typename V::Reg value = V::zero();
  for (int i = 0; i < kCount; ++i) value[i] = scalar(from[i]);
  return value;
}

template <class V>
struct LoadF32 {
  using Stored = float;
  static float scalar(float value) { return value; }
  static typename V::Reg vector(const float* from) { return V::load(from); }
  template <int kCount>
  static typename V::Reg first(const float* from) {
    return V::load_first(from, kCount);
  }
};

template <class V>
struct LoadBF16 {
  using Stored = uint16_t;
  static float scalar(uint16_t value) {
    const uint32_t bits = static_cast<uint32_t>(value) << 16;
    float number;
    __builtin_memcpy(&number, &bits, sizeof number);
    return number;
  }
  static typename V::Reg vector(const uint16_t* from) { return V::from_bf16(from); }
  template <int kCount>
  static typename V::Reg first(const uint16_t* from) {
    return first_scalars<V, kCount>(from, scalar);
  }
};

template <class V>
struct LoadF16 {
  using Stored = uint16_t;
  static float scalar(uint16_t value) { return V::scalar_from_f16(value); }
  static typename V::Reg vector(const uint16_t* from) { return V::from_f16(from); }
  template <int kCount>
  static typename V::Reg first(const uint16_t* from) {
    return first_scalars<V, kCount>(from, scalar);
  }
};

template <class V, int kWidth>
void pack(const PackSource& source, float* packed) {
  switch (source.element) {
    case GemmElement::F32:
      return pack_as<V, kWidth, LoadF32<V>>(source, packed);
    case GemmElement::BF16:
      return pack_as<V, kWidth, LoadBF16<V>>(source, packed);
    case GemmElement::F16:
      return pack_as<V, kWidth, LoadF16<V>>(source, packed);
  }
}

// Floats from row to row of the left factor: in a panel, and in a tile.
inline constexpr int64_t kPanelLeft = 1;
inline constexpr int64_t kTileLeft = kTileStride;

// kRows rows and kVectors vectors of columns. The sums stay in registers.
template <class V, int64_t kLeft, int kRows, int kVectors>
[[gnu::always_inline]] inline void multiply_rows(const PanelMatmul& matmul, float* c,
                                                 int64_t c_stride, bool add) {
  using Reg = typename V::Reg;
  Reg sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[row][v] = V::zero();
  }
  const float* a = matmul.a;
  const float* b = matmul.b;
  for (int64_t p = 0; p < matmul.depth; ++p) {
    Reg right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = V::load(b + v * V::kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const Reg left = V::spread(a[row * kLeft]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[row][v] = V::multiply_add(left, right[v], sum[row][v]);
    }
    a += matmul.a_stride;
    b += matmul.b_stride;
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    float* to = c + row * c_stride;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      V::store(to + v * V::kLanes, add ? V::load(to + v * V::kLanes) + sum[row][v] : sum[row][v]);
    }
  }
}

// Up to kRows rows and kVectors vectors. At the edge of a matrix all of them are computed in a
// buffer and the part inside is copied.
template <class V, int64_t kLeft, int kRows, int kVectors>
void multiply_part(const PanelMatmul& matmul) {
  constexpr int kCols = kVectors * V::kLanes;
  if (matmul.rows == kRows && matmul.cols == kCols) {
    return multiply_rows<V, kLeft, kRows, kVectors>(matmul, matmul.c, matmul.c_stride, matmul.add);
  }
  alignas(64) float full[kRows * kCols];
  multiply_rows<V, kLeft, kRows, kVectors>(matmul, full, kCols, false);
  for (int64_t row = 0; row < matmul.rows; ++row) {
    float* to = matmul.c + row * matmul.c_stride;
    const float* from = full + row * kCols;
    if (matmul.add) {
      for (int64_t i = 0; i < matmul.cols; ++i) to[i] += from[i];
    } else {
      for (int64_t i = 0; i < matmul.cols; ++i) to[i] = from[i];
    }
  }
}

// Skips a third or two of the rows, and half of the columns, of a panel that is not full.
template <class V, int64_t kLeft, int kRows>
void multiply(const PanelMatmul& matmul) {
  static_assert(kRows % 3 == 0);
  constexpr int kThird = kRows / 3;
  const bool narrow = matmul.cols <= V::kLanes;
  if (matmul.rows <= kThird) {
    return narrow ? multiply_part<V, kLeft, kThird, 1>(matmul)
                  : multiply_part<V, kLeft, kThird, 2>(matmul);
  }
  if (matmul.rows <= 2 * kThird) {
    return narrow ? multiply_part<V, kLeft, 2 * kThird, 1>(matmul)
                  : multiply_part<V, kLeft, 2 * kThird, 2>(matmul);
  }
  return narrow ? multiply_part<V, kLeft, kRows, 1>(matmul)
                : multiply_part<V, kLeft, kRows, 2>(matmul);
}

// A variant whose panels hold floats: kRows rows, and the columns of two vectors.
template <class V, int kRows>
constexpr GemmVariant float_variant(const char* name) {
  constexpr int kCols = 2 * V::kLanes;
  return {.name = name,
          .panel_rows = kRows,
          .panel_cols = kCols,
          .pack_rows = pack<V, kRows>,
          .pack_cols = pack<V, kCols>,
          .multiply = multiply<V, kPanelLeft, kRows>,
          .multiply_tile = multiply<V, kTileLeft, kRows>};
}

}  // namespace
}  // namespace weft

// Matmuls of a warp on tiles in shared memory, with sums in registers. A tile has rows of kDim
// elements plus 16 bytes of padding, so that eight lanes reading the same columns of eight rows hit
// eight different banks. Left and right operands come from the rows of a tile, right ones also from
// its columns. A left operand can also be the sums of another matmul, so matmuls can be chained.
#pragma once

#include <cstdint>

#include "runtime/cuda/vector.h"

namespace weft::cuda {

// Rows of sums per warp; a group of sums is 8 columns wide. Of each group a lane holds sums 0 and 1
// in its row 0, sums 2 and 3 in its row 1.
inline constexpr int kWarpRows = 16;
inline constexpr int kGroup = 8;

// Position of this lane's sums among those of its warp.
__device__ inline int lane_row(int which) {
  return static_cast<int>(threadIdx.x) % 32 / 4 + 8 * which;
}
__device__ inline int lane_column() {
  return static_cast<int>(threadIdx.x) % 4 * 2;
}

// Matmuls of half types.
template <DType kType>
struct TileMatmul {
  using Element = Stored<kType>;
  static constexpr int kDepth = 16;    // terms that one instruction adds
  static constexpr int kUnrolled = 4;  // steps over rows
  using Left = uint32_t[4];
  using Right = uint32_t[4];  // of two groups of columns

  template <int kPitch>
  static __device__ void left_rows(Left& left, const Element* tile) {
    const int lane = threadIdx.x % 32;
    load_blocks(left, tile + lane % 16 * kPitch + lane / 16 * 8);
  }

  // From the sums of another matmul.
  template <int kTerms>
  static __device__ void left_sums(Left& left, const float (&sums)[kTerms][4], int step) {
    for (int half = 0; half < 2; ++half) {
      const float(&group)[4] = sums[2 * step + half];
      left[2 * half] = pack(Element(), group[0], group[1]);
      left[2 * half + 1] = pack(Element(), group[2], group[3]);
    }
  }

  template <int kPitch>
  static __device__ void right_rows(Right& right, const Element* tile) {
    const int lane = threadIdx.x % 32;
    load_blocks(right, tile + (lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 8);
  }

  template <int kPitch>
  static __device__ void right_columns(Right& right, const Element* tile) {
    const int lane = threadIdx.x % 32;
    load_blocks_transposed(right, tile + lane % 16 * kPitch + lane / 16 * 8);
  }

  // sums += left right over kSteps of kDepth terms, partly unrolled; left_of(left, step) and
  // right_of(right, step, pair of groups) fill in the operands.
  template <int kSteps, int kUnrolled, int kGroups, class LeftOf, class RightOf>
  static __device__ void multiply(float (&sums)[kGroups][4], LeftOf left_of, RightOf right_of) {
#pragma unroll kUnrolled
    for (int step = 0; step < kSteps; ++step) {
      Left left;
      left_of(left, step);
#pragma unroll
      for (int pair = 0; pair < kGroups / 2; ++pair) {
        Right right;
        right_of(right, step, pair);
        multiply_add(Element(), sums[2 * pair], left, right[0], right[1]);
        multiply_add(Element(), sums[2 * pair + 1], left, right[2], right[3]);
      }
    }
  }

  static __device__ void store_pair(Element* to, float first, float second) {
    *reinterpret_cast<uint32_t*>(to) = pack(Element(), first, second);
  }
};

// Matmuls of f32. x = high + low within 2^-23 of x, both with the 11 bits that matrix units read,
// and x y = high high' + high low' + low high' within 2^-21 of it, four units in the last place.
// Matrix units truncate sums instead of rounding them. So each tile's sums start from zero, those
// of the low parts separately, and are added to the rest as f32.
template <>
struct TileMatmul<DType::F32> {
  using Element = float;
  static constexpr int kDepth = 8;
  static constexpr int kUnrolled = 1;
  struct Left {
    uint32_t high[4], low[4];
  };
  struct Right {
    uint32_t high[4], low[4];
  };

  // `high` is x rounded to 11 bits; `low` has the upper 11 of the up to 12 bits that remain.
  static __device__ void split(uint32_t& high, uint32_t& low, float x) {
    constexpr uint32_t kUpper = 0xffffe000;
    high = (__float_as_uint(x) + 0x1000) & kUpper;
    low = __float_as_uint(x - __uint_as_float(high)) & kUpper;
  }

  template <int kPitch>
  static __device__ void left_rows(Left& left, const float* tile) {
    const float* from = tile + lane_row(0) * kPitch + lane_column() / 2;
    for (int i = 0; i < 4; ++i) {
      split(left.high[i], left.low[i], from[i % 2 * 8 * kPitch + i / 2 * 4]);
    }
  }

  // Column 2 t of the sums is term t, column 2 t + 1 is term t + 4, as in right_columns.
  template <int kTerms>
  static __device__ void left_sums(Left& left, const float (&sums)[kTerms][4], int step) {
    const float(&group)[4] = sums[step];
    for (int i = 0; i < 4; ++i) split(left.high[i], left.low[i], group[i % 2 * 2 + i / 2]);
  }

  template <int kPitch>
  static __device__ void right_rows(Right& right, const float* tile) {
    const float* from = tile + lane_row(0) * kPitch + lane_column() / 2;
    for (int i = 0; i < 4; ++i) {
      split(right.high[i], right.low[i], from[i / 2 * 8 * kPitch + i % 2 * 4]);
    }
  }

  template <int kPitch>
  static __device__ void right_columns(Right& right, const float* tile) {
    const float* from = tile + lane_column() * kPitch + lane_row(0);
    for (int i = 0; i < 4; ++i) {
      split(right.high[i], right.low[i], from[i % 2 * kPitch + i / 2 * 8]);
    }
  }

  template <int kSteps, int kUnrolled, int kGroups, class LeftOf, class RightOf>
  static __device__ void multiply(float (&sums)[kGroups][4], LeftOf left_of, RightOf right_of) {
    constexpr int kAtOnce = 4;  // groups
#pragma unroll
    for (int first = 0; first < kGroups; first += kAtOnce) {
      float high[kAtOnce][4] = {};
      float low[kAtOnce][4] = {};
#pragma unroll kUnrolled
      for (int step = 0; step < kSteps; ++step) {
        Left left;
        left_of(left, step);
#pragma unroll
        for (int group = 0; group < kAtOnce; group += 2) {
          Right right;
          right_of(right, step, (first + group) / 2);
          for (int i = 0; i < 2; ++i) {
            multiply_add(0.0f, low[group + i], left.low, right.high[2 * i], right.high[2 * i + 1]);
            multiply_add(0.0f, low[group + i], left.high, right.low[2 * i], right.low[2 * i + 1]);
            multiply_add(0.0f, high[group + i], left.high, right.high[2 * i],
                         right.high[2 * i + 1]);
          }
        }
      }
      for (int group = 0; group < kAtOnce; ++group) {
        for (int i = 0; i < 4; ++i) sums[first + group][i] += high[group][i] + low[group][i];
      }
    }
  }

  static __device__ void store_pair(float* to, float first, float second) {
    *reinterpret_cast<float2*>(to) = make_float2(first, second);
  }
};

template <DType kType, int kDim>
struct Tile {
  using Element = Stored<kType>;
  using P = TileMatmul<kType>;
  static constexpr int kChunk = 16 / sizeof(Element);  // elements per copy
  static constexpr int kPitch = kDim + kChunk;

  // Starts to copy rows from `first` on of a tensor with pitch `pitch`; rows from `end` on and
  // columns from `dim` on become zero.
  template <int kRows, int kThreads>
  static __device__ void copy(Element* to, const Element* from, int64_t pitch, int dim, int first,
                              int end) {
    constexpr int kChunks = kDim / kChunk;
    constexpr int kRowsAtOnce = kThreads / kChunks;
    static_assert(kThreads % kChunks == 0 && kRows % kRowsAtOnce == 0);
    const int row = static_cast<int>(threadIdx.x) / kChunks;
    const int column = static_cast<int>(threadIdx.x) % kChunks * kChunk;
    const Element* at = from + (first + row) * pitch + column;
#pragma unroll
    for (int more = 0; more < kRows; more += kRowsAtOnce) {
      copy_async(to + (row + more) * kPitch + column, at, column < dim && first + row + more < end);
      at += kRowsAtOnce * pitch;
    }
  }

  // sums += left right^T, for kWarpRows rows of one tile and kGroups * kGroup of another.
  template <int kGroups>
  static __device__ void multiply_rows(float (&sums)[kGroups][4], const Element* left_tile,
                                       const Element* right_tile) {
    P::template multiply<kDim / P::kDepth, P::kUnrolled>(
        sums,
        [&](typename P::Left& left, int step) {
          P::template left_rows<kPitch>(left, left_tile + step * P::kDepth);
        },
        [&](typename P::Right& right, int step, int pair) {
          P::template right_rows<kPitch>(
              right, right_tile + pair * 2 * kGroup * kPitch + step * P::kDepth);
        });
  }

  // sums += weights right: weights are the sums of another matmul, whose columns are rows of the
  // tile.
  template <int kTerms>
  static __device__ void multiply_sums(float (&sums)[kDim / kGroup][4],
                                       const float (&weights)[kTerms][4],
                                       const Element* right_tile) {
    constexpr int kSteps = kTerms * kGroup / P::kDepth;
    P::template multiply<kSteps, kSteps>(
        sums, [&](typename P::Left& left, int step) { P::left_sums(left, weights, step); },
        [&](typename P::Right& right, int step, int pair) {
          P::template right_columns<kPitch>(
              right, right_tile + step * P::kDepth * kPitch + pair * 2 * kGroup);
        });
  }

  // Stores the warp's rows, each scaled by a factor, as rows from `first` on of a tensor.
  static __device__ void store(Element* to, int64_t pitch, int dim, int first, int end,
                               const float (&sums)[kDim / kGroup][4], const float (&factor)[2]) {
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      const int row = first + lane_row(which);
      if (row >= end) continue;
#pragma unroll
      for (int group = 0; group < kDim / kGroup; ++group) {
        if (group * kGroup >= dim) break;
        const float(&pair)[4] = sums[group];
        P::store_pair(to + row * pitch + group * kGroup + lane_column(),
                      pair[2 * which] * factor[which], pair[2 * which + 1] * factor[which]);
      }
    }
  }
};

}  // namespace weft::cuda

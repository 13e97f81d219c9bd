// Every matmul variant against sums in double, at sizes that leave panels partly empty; and the
// promise that fused multiply-adds give the same result for every vector width.
#include "runtime/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/half.h"
#include "base/philox.h"
#include "base/text.h"

namespace weft {
namespace {

struct Sizes {
  int64_t rows, cols, depth;
};
constexpr Sizes kSizes[] = {{1, 1, 1},   {12, 32, 16}, {13, 33, 17},
                            {5, 70, 50}, {30, 7, 384}, {64, 48, 96}};

struct AlignedFree {
  void operator()(float* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<float, AlignedFree>;

Memory aligned(int64_t floats) {
  const int64_t bytes = (floats * 4 + 63) / 64 * 64;
  return Memory(static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(bytes))));
}

float random(uint64_t i) {
  return unit_from_bits(random_block(random_key(1, 2), 0, i).word[0]) - 0.5f;
}

}  // namespace

#if defined(__x86_64__)
const GemmVariant& gemm_emulated_amx();  // support/amx_emulation.h
#endif

namespace {

std::vector<const GemmVariant*> variants() {
  std::vector<const GemmVariant*> all = {&gemm_portable()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&gemm_avx2());
  if (__builtin_cpu_supports("avx512f")) all.push_back(&gemm_avx512());
  if (__builtin_cpu_supports("avx512bf16")) all.push_back(&gemm_avx512_bf16());
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    all.push_back(&gemm_emulated_amx());
  }
#endif
  return all;
}

// A factor of the matmul in some dtype, stored row- or column-major, with its values.
struct Factor {
  std::vector<float> values;  // rows x cols
  std::vector<float> f32;
  std::vector<uint16_t> half;
  MatrixView view;

  Factor(int64_t rows, int64_t cols, DType dtype, bool across, uint64_t seed) {
    const int64_t n = rows * cols;
    for (int64_t i = 0; i < n; ++i) {
      const float value = random(seed + static_cast<uint64_t>(i));
      values.push_back(dtype == DType::BF16  ? f32_from_bf16(bf16_from_f32(value))
                       : dtype == DType::F16 ? f32_from_f16(f16_from_f32(value))
                                             : value);
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t from = across ? i % rows * cols + i / rows : i;
      f32.push_back(values[static_cast<size_t>(from)]);
      half.push_back(dtype == DType::F16 ? f16_from_f32(f32.back()) : bf16_from_f32(f32.back()));
    }
    const void* data = dtype == DType::F32 ? static_cast<const void*>(f32.data()) : half.data();
    view = across ? transposed(matrix(data, dtype, rows)) : matrix(data, dtype, cols);
  }
  Factor(const Factor&) = delete;
};

std::vector<float> matmul(const GemmVariant& variant, const Sizes& s, const Factor& a,
                          const Factor& b, GemmMode mode) {
  const Memory packed_a = aligned((s.rows + kGemmPadding) * largest_packed_depth(s.depth));
  const Memory packed_b = aligned((s.cols + kGemmPadding) * largest_packed_depth(s.depth));
  pack_left(variant, a.view, s.rows, s.depth, packed_a.get());
  pack_right(variant, b.view, s.depth, s.cols, packed_b.get());
  std::vector<float> c(static_cast<size_t>(s.rows * s.cols), 1.0f);
  const int64_t lane = packed_depth(variant, s.depth);
  multiply_packed(variant, {s.rows, s.cols, s.depth}, {packed_a.get(), lane},
                  {packed_b.get(), lane}, c.data(), s.cols, mode);
  return c;
}

void expect_matmul(const std::vector<float>& c, const Sizes& s, const Factor& a, const Factor& b,
                   double start) {
  for (int64_t i = 0; i < s.rows; ++i) {
    for (int64_t j = 0; j < s.cols; ++j) {
      double sum = start, size = std::abs(start);
      for (int64_t p = 0; p < s.depth; ++p) {
        const double term = static_cast<double>(a.values[static_cast<size_t>(i * s.depth + p)]) *
                            b.values[static_cast<size_t>(p * s.cols + j)];
        sum += term;
        size += std::abs(term);
      }
      // Each of the depth + 1 additions rounds by at most half an ulp of the sum so far.
      const double bound = size * static_cast<double>(s.depth + 2) * 0x1p-24;
      ASSERT_NEAR(c[static_cast<size_t>(i * s.cols + j)], sum, bound) << i << "," << j;
    }
  }
}

void expect_every_layout_and_dtype(const GemmVariant& variant) {
  for (const Sizes& s : kSizes) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      if (variant.terms == 2 && dtype != DType::BF16) continue;
      for (const bool a_across : {false, true}) {
        for (const bool b_across : {false, true}) {
          SCOPED_TRACE(cat(variant.name, " ", s.rows, "x", s.cols, "x", s.depth, " ",
                           dtype_name(dtype), " ", a_across, b_across));
          const Factor a(s.rows, s.depth, dtype, a_across, 0);
          const Factor b(s.depth, s.cols, dtype, b_across, 100000);
          expect_matmul(matmul(variant, s, a, b, GemmMode::Store), s, a, b, 0);
          expect_matmul(matmul(variant, s, a, b, GemmMode::Add), s, a, b, 1);
        }
      }
    }
  }
}

TEST(Gemm, EveryVariantMultipliesEveryLayoutAndDtype) {
  for (const GemmVariant* variant : variants()) expect_every_layout_and_dtype(*variant);
}

TEST(Gemm, TilesOfTheProcessorMultiplyEveryLayout) {
#if defined(__x86_64__)
  if (!amx_allowed()) GTEST_SKIP() << "no AMX on this machine";
  expect_every_layout_and_dtype(gemm_amx());
#else
  GTEST_SKIP() << "not an x86-64 machine";
#endif
}

// A tile with the values of a factor; the rest is NaN, which must not reach the result.
std::vector<float> tile_of(const Factor& factor, int64_t rows, int64_t cols) {
  std::vector<float> tile(static_cast<size_t>((rows + kGemmPadding) * kTileStride), NAN);
  for (int64_t i = 0; i < rows * cols; ++i) {
    tile[static_cast<size_t>(i / cols * kTileStride + i % cols)] =
        factor.values[static_cast<size_t>(i)];
  }
  return tile;
}

TEST(Gemm, ATileIsAFactorAsItIs) {
  constexpr Sizes kTiles[] = {{1, 1, 1}, {12, 32, 16}, {96, 16, 64}, {16, 64, 50}, {37, 20, 33}};
  for (const GemmVariant* variant : variants()) {
    if (variant->multiply_tile == nullptr) continue;
    for (const Sizes& s : kTiles) {
      SCOPED_TRACE(cat(variant->name, " ", s.rows, "x", s.cols, "x", s.depth));
      const Factor a(s.rows, s.depth, DType::F32, false, 0);
      const Factor b(s.depth, s.cols, DType::F32, false, 100000);
      const std::vector<float> expected = matmul(*variant, s, a, b, GemmMode::Add);
      const GemmShape shape{s.rows, s.cols, s.depth};

      const Memory packed_b = aligned((s.cols + kGemmPadding) * s.depth);
      pack_right(*variant, b.view, s.depth, s.cols, packed_b.get());
      std::vector<float> c(expected.size(), 1.0f);
      multiply_left_tile(*variant, shape, tile_of(a, s.rows, s.depth).data(),
                         {packed_b.get(), s.depth}, c.data(), s.cols, GemmMode::Add);
      EXPECT_EQ(c, expected);

      const Memory packed_a = aligned((s.rows + kGemmPadding) * s.depth);
      pack_left(*variant, a.view, s.rows, s.depth, packed_a.get());
      c.assign(expected.size(), 1.0f);
      multiply_right_tile(*variant, shape, {packed_a.get(), s.depth},
                          tile_of(b, s.depth, s.cols).data(), c.data(), s.cols, GemmMode::Add);
      EXPECT_EQ(c, expected);
    }
  }
}

TEST(Gemm, ATransposedLeftFactorOfFullPanelsNeedsNoPacking) {
  constexpr Sizes kFullPanels[] = {{12, 32, 16}, {96, 20, 64}, {24, 64, 1}, {48, 1, 33}};
  for (const GemmVariant* variant : variants()) {
    if (variant->terms > 1) continue;
    for (const Sizes& s : kFullPanels) {
      SCOPED_TRACE(cat(variant->name, " ", s.rows, "x", s.cols, "x", s.depth));
      const Factor a(s.rows, s.depth, DType::F32, true, 0);
      const Factor b(s.depth, s.cols, DType::F32, false, 100000);
      const Memory packed_b = aligned((s.cols + kGemmPadding) * s.depth);
      pack_right(*variant, b.view, s.depth, s.cols, packed_b.get());
      std::vector<float> c(static_cast<size_t>(s.rows * s.cols), 1.0f);
      // Prefetching changes nothing, whatever the address.
      const Ahead ahead{reinterpret_cast<const char*>(a.f32.data()), s.rows * 4, 100, s.depth};
      multiply_transposed(*variant, {s.rows, s.cols, s.depth}, a.f32.data(), s.rows,
                          {packed_b.get(), s.depth}, c.data(), s.cols, GemmMode::Add, ahead);
      EXPECT_EQ(c, matmul(*variant, s, a, b, GemmMode::Add));
    }
  }
}

TEST(Gemm, TheWidthOfVectorsDoesNotChangeBits) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "no AVX-512 on this machine";
  for (const Sizes& s : kSizes) {
    const Factor a(s.rows, s.depth, DType::F32, false, 0);
    const Factor b(s.depth, s.cols, DType::F32, true, 100000);
    EXPECT_EQ(matmul(gemm_avx2(), s, a, b, GemmMode::Store),
              matmul(gemm_avx512(), s, a, b, GemmMode::Store));
  }
#else
  GTEST_SKIP() << "not an x86-64 machine";
#endif
}

}  // namespace
}  // namespace weft

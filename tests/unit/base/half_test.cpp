// bf16 and f16: every pattern round-trips; rounding is checked on both sides of every tie.
#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

TEST(Half, EveryBf16PatternRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    ASSERT_EQ(bf16_from_f32(f32_from_bf16(half)), half) << bits;
  }
}

TEST(Half, EveryF16PatternRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    ASSERT_EQ(f16_from_f32(f32_from_f16(half)), half) << bits;
  }
}

// The midpoint of neighbours a < b rounds to the even one; values next to it round to the nearer
// one.
TEST(Half, Bf16RoundsToNearestEven) {
  for (uint32_t upper = 0; upper < 0x7f80; ++upper) {
    const uint32_t tie = (upper << 16) | 0x8000;
    ASSERT_EQ(bf16_from_f32(f32_from_bits(tie - 1)), upper);
    ASSERT_EQ(bf16_from_f32(f32_from_bits(tie)), upper + (upper & 1));
    ASSERT_EQ(bf16_from_f32(f32_from_bits(tie + 1)), upper + 1);
    ASSERT_EQ(bf16_from_f32(f32_from_bits((tie + 1) | 0x80000000)), (upper + 1) | 0x8000);
  }
}

TEST(Half, F16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = f32_from_f16(static_cast<uint16_t>(bits));
    const float high = f32_from_f16(static_cast<uint16_t>(bits + 1));
    const float tie = low + (high - low) * 0.5f;  // exact: f32 has 13 more bits
    ASSERT_EQ(f16_from_f32(std::nextafterf(tie, 0.0f)), bits);
    ASSERT_EQ(f16_from_f32(tie), bits + (bits & 1));
    ASSERT_EQ(f16_from_f32(std::nextafterf(tie, 1e9f)), bits + 1);
    ASSERT_EQ(f16_from_f32(-tie), (bits + (bits & 1)) | 0x8000);
  }
  EXPECT_EQ(f16_from_f32(65504.0f), 0x7bff);
  EXPECT_EQ(f16_from_f32(65519.99f), 0x7bff);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);
  EXPECT_EQ(f16_from_f32(1e30f), 0x7c00);
}

TEST(Half, NanStaysNanWhateverItsPayload) {
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0x7fffffffu, 0x7f801000u}) {
    EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(f32_from_bits(bits)))));
    EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(f32_from_bits(bits)))));
  }
}

TEST(Half, InfinitiesAndZerosAreExact) {
  EXPECT_EQ(bf16_from_f32(INFINITY), 0x7f80);
  EXPECT_EQ(f16_from_f32(-INFINITY), 0xfc00);
  EXPECT_EQ(bf16_from_f32(-0.0f), 0x8000);
  EXPECT_EQ(f16_from_f32(-0.0f), 0x8000);
}

#ifdef __FLT16_MAX__
// Against the compiler's own type: every f16 to f32, and f32 to f16 for every upper half with low
// parts at, next to and far from the ties.
TEST(Half, F16AgreesWithTheCompiler) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    _Float16 native;
    __builtin_memcpy(&native, &half, sizeof half);
    const auto expected = static_cast<float>(native);
    const float actual = f32_from_f16(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual));
    } else {
      ASSERT_EQ(bits_from_f32(actual), bits_from_f32(expected)) << bits;
    }
    for (const uint32_t low : {0x0u, 0x1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu, 0x3000u, 0x5000u,
                               0x7fffu, 0x8000u, 0x8001u, 0xf000u, 0xffffu}) {
      const float value = f32_from_bits((bits << 16) | low);
      if (std::isnan(value)) continue;
      const auto rounded = static_cast<_Float16>(value);
      uint16_t rounded_bits;
      __builtin_memcpy(&rounded_bits, &rounded, sizeof rounded_bits);
      ASSERT_EQ(f16_from_f32(value), rounded_bits) << value;
    }
  }
}
#endif

}  // namespace
}  // namespace weft

// Checks the error bounds stated in simd.h, over the full range of floats.
#include "runtime/cpu/simd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace weft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Calls fn for floats of both signs and all magnitudes, some thousand per power of two.
template <class Fn>
void for_floats(float low, float high, const Fn& fn) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 1021) {
    const float x = f32_from_bits(static_cast<uint32_t>(bits));
    if (x >= low && x <= high) fn(x);
  }
}

// Difference in units in the last place of the exact value.
double ulps(float found, double exact) {
  const double ulp = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(found - exact) / ulp;
}

TEST(Simd, ExpIsWithinItsError) {
  double worst = 0;
  for_floats(-87.3f, 88.72f, [&](float x) {
    worst = std::max(worst, ulps(exp_f32(x), std::exp(static_cast<double>(x))));
  });
  EXPECT_LE(worst, 1.1);
  EXPECT_GT(worst, 0.5);  // the error was measured at all
}

TEST(Simd, ExpBeyondItsRange) {
  EXPECT_EQ(exp_f32(-87.4f), 0.0f);
  EXPECT_EQ(exp_f32(-kInfinity), 0.0f);
  EXPECT_EQ(exp_f32(88.73f), kInfinity);
  EXPECT_EQ(exp_f32(kInfinity), kInfinity);
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
}

TEST(Simd, ExpOfLanesIsThatOfEachLane) {
  const float values[kLanes] = {0,      -0.0f,  1,         -1,        88.72f, 88.73f,
                                -87.3f, -87.4f, 1e-30f,    20.5f,     -20.5f, 0.34f,
                                -0.35f, 3.14f,  kInfinity, -kInfinity};
  const Lanes found = exp_f32(lanes_at(values));
  for (int i = 0; i < kLanes; ++i) EXPECT_EQ(found[i], exp_f32(values[i])) << values[i];
  EXPECT_TRUE(std::isnan(exp_f32(f32_from_bits(0x7f800001))));
  EXPECT_TRUE(std::isnan(exp_f32(f32_from_bits(0xffffffff))));
}

TEST(Simd, SigmoidIsWithinItsError) {
  double worst = 0;
  for_floats(-87.0f, kInfinity, [&](float x) {
    worst = std::max(worst, ulps(sigmoid_f32(x), 1.0 / (1.0 + std::exp(-static_cast<double>(x)))));
  });
  EXPECT_LE(worst, 2.5);
  EXPECT_EQ(sigmoid_f32(-kInfinity), 0.0f);
  EXPECT_EQ(sigmoid_f32(kInfinity), 1.0f);
}

TEST(Simd, TheLargestLaneWhereverItIs) {
  std::vector<float> x(40, -3.0f);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = 1.0f;
    EXPECT_EQ(lane_max(x.data(), 40), 1.0f) << i;
    x[i] = -3.0f;
  }
  EXPECT_EQ(lane_max(x.data(), 0), -kInfinity);
}

}  // namespace
}  // namespace weft

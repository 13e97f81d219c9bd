// The vector conversions agree with base/half.h, bit for bit.
#include "runtime/cpu/elements.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/half.h"

namespace weft {
namespace {

TEST(Elements, EveryF16IsReadAsInBase) {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(halves.size());
  const int64_t n = static_cast<int64_t>(halves.size());
  load({halves.data(), DType::F16, {n}}, 0, n, floats.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(bits_from_f32(floats[i]), bits_from_f32(f32_from_f16(halves[i]))) << i;
  }
}

// All exponents and signs with mantissas at, next to and far from the ties of f16.
TEST(Elements, F32IsRoundedToF16AsInBase) {
  std::vector<float> floats;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 0x1000) {
    for (const uint32_t low : {0u, 1u, 0x7ffu, 0x800u, 0xfffu}) {
      floats.push_back(f32_from_bits(static_cast<uint32_t>(bits) | low));
    }
  }
  const int64_t n = static_cast<int64_t>(floats.size());
  std::vector<uint16_t> halves(floats.size());
  store({halves.data(), DType::F16, {n}}, 0, n, floats.data());
  std::vector<float> rounded = floats;
  round_to(DType::F16, n, rounded.data());
  for (size_t i = 0; i < floats.size(); ++i) {
    const uint16_t expected = f16_from_f32(floats[i]);
    ASSERT_EQ(halves[i], expected) << bits_from_f32(floats[i]);
    ASSERT_EQ(bits_from_f32(rounded[i]), bits_from_f32(f32_from_f16(expected)));
  }
}

}  // namespace
}  // namespace weft

#include "runtime/comm/sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/half.h"
#include "runtime/comm/communicator.h"

namespace weft {
namespace {

// Values whose sum depends on the order.
std::vector<float> values(size_t source, int64_t n) {
  std::vector<float> list(static_cast<size_t>(n));
  uint32_t state = static_cast<uint32_t>(source) * 2654435761u + 1;
  for (float& value : list) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-24f;
  }
  return list;
}

float tree(const std::vector<std::vector<float>>& sources, size_t begin, size_t end, size_t i) {
  if (end - begin == 1) return sources[begin][i];
  size_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  return tree(sources, begin, begin + half, i) + tree(sources, begin + half, end, i);
}

// Sums up to 9 sources into source `target`; `n` decides whether the sum bypasses the caches.
void check_sum(size_t count, int64_t n, size_t target) {
  std::vector<std::vector<float>> sources, copies;
  std::vector<const void*> pointers;
  for (size_t i = 0; i < count; ++i) sources.push_back(values(i, n));
  copies = sources;
  for (auto& source : sources) pointers.push_back(source.data());
  tree_sum(pointers, DType::F32, n, {sources[target].data(), DType::F32});
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    ASSERT_EQ(sources[target][i], tree(copies, 0, count, i)) << count << " sources, element " << i;
  }
}

TEST(TreeSum, FollowsTheTreeAndMayOverwriteASource) {
  for (size_t count = 1; count <= 9; ++count) {
    for (size_t target = 0; target < count; ++target) check_sum(count, 2500, target);
  }
}

TEST(TreeSum, LargeOnesGoPastTheCachesAlike) {
  for (const size_t count : {1, 2, 3, 4, 8}) check_sum(count, (1 << 20) + 333, count - 1);
}

TEST(TreeSum, RoundsOnceFromF32) {
  std::vector<uint16_t> a = {bf16_from_f32(1)}, b = {bf16_from_f32(0x1p-9f)};
  std::vector<uint16_t> c = {bf16_from_f32(0x1p-8f)}, to(1);
  const void* sources[] = {a.data(), b.data(), c.data()};
  tree_sum(sources, DType::BF16, 1, {to.data(), DType::BF16});
  // The f32 sum is nearer to 1 + 2^-7; rounded after each addition it would stay at 1.
  EXPECT_EQ(to[0], bf16_from_f32(1 + 0x1p-7f));
  float wide = 0;
  tree_sum(sources, DType::BF16, 1, {&wide, DType::F32});
  EXPECT_EQ(wide, 1 + 0x1p-8f + 0x1p-9f);
}

TEST(TreeSum, IntegersAreExact) {
  const std::vector<int64_t> a = {int64_t{1} << 60, -5}, b = {3, 7};
  std::vector<int64_t> to(2);
  const void* sources[] = {a.data(), b.data()};
  tree_sum(sources, DType::I64, 2, {to.data(), DType::I64});
  EXPECT_EQ(to[0], (int64_t{1} << 60) + 3);
  EXPECT_EQ(to[1], 2);
}

TEST(CopyBytes, AnyAlignmentAndLength) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4 << 20}, int64_t{(4 << 20) + 77}}) {
    for (const size_t shift : {0, 1, 63}) {
      std::vector<char> from(static_cast<size_t>(bytes) + 64), to(from.size() + 64, 'x');
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 31 % 251);
      copy_bytes(to.data() + shift, from.data() + 5, bytes);
      EXPECT_EQ(std::memcmp(to.data() + shift, from.data() + 5, static_cast<size_t>(bytes)), 0);
      EXPECT_EQ(to[shift + static_cast<size_t>(bytes)], 'x');
    }
  }
}

}  // namespace
}  // namespace weft

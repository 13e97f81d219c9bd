#include "runtime/comm/flat_layout.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace weft {
namespace {

// Members of 1500 and 700 elements, at elements 0 and 2048 of a flat tensor.
std::vector<Tensor> members(char* base) {
  return {{base, DType::BF16, {1500}}, {base + 2048 * 2, DType::BF16, {700}}};
}

TEST(FlatLayout, AShardHasChunksAndGaps) {
  std::vector<char> bytes(6000);
  char* memory = bytes.data();
  const auto chunks = member_chunks(members(memory), 1024, 3072);
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0].member, 0U);
  EXPECT_EQ(chunks[0].offset, 1024);
  EXPECT_EQ(chunks[0].position, 0);
  EXPECT_EQ(chunks[0].elements, 476);
  EXPECT_EQ(chunks[1].position, 1024);
  EXPECT_EQ(chunks[1].elements, 700);
  const auto gaps = gaps_of(chunks, 2048);
  ASSERT_EQ(gaps.size(), 2U);
  EXPECT_EQ(gaps[0].begin, 476);
  EXPECT_EQ(gaps[0].end, 1024);
  EXPECT_EQ(gaps[1].begin, 1724);
  EXPECT_EQ(gaps[1].end, 2048);
  EXPECT_EQ(flat_end(members(memory)), 2748);
}

TEST(FlatLayout, AShardBehindTheMembersIsOneGap) {
  std::vector<char> bytes(6000);
  char* memory = bytes.data();
  const auto chunks = member_chunks(members(memory), 3072, 4096);
  EXPECT_TRUE(chunks.empty());
  const auto gaps = gaps_of(chunks, 1024);
  ASSERT_EQ(gaps.size(), 1U);
  EXPECT_EQ(gaps[0].end, 1024);
}

TEST(FlatLayout, MembersMustLieAsInTheFlat) {
  std::vector<char> bytes(6000);
  char* memory = bytes.data();
  std::vector<Tensor> list = members(memory);
  EXPECT_NO_THROW(check_contiguous(list));
  list[1].data = memory + 1500 * 2;
  EXPECT_THROW(check_contiguous(list), InternalError);
}

TEST(FlatLayout, WorkspaceHoldsWhatTheOthersSend) {
  EXPECT_EQ(scatter_workspace(DType::F32, 1024, 4), 3 * 1024 * 4);
  EXPECT_EQ(scatter_workspace(DType::F32, 1024, 1), 0);
  EXPECT_EQ(sum_workspace(DType::F32, 3, 4), 4 * 3 * 4);  // few bytes: the parts of all ranks
  EXPECT_EQ(sum_workspace(DType::BF16, 100'000, 4), 3 * 25'024 * 2);  // slices on full cache lines
  EXPECT_EQ(sum_workspace(DType::F32, 3, 1), 0);
}

}  // namespace
}  // namespace weft

#include "runtime/comm/communicator.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace weft {
namespace {

RankInfo place(int64_t rank) {
  Mesh mesh;
  mesh.axes = {{"a", 2}, {"b", 3}, {"c", 2}};
  return {mesh, rank};
}

TEST(RankInfo, RanksAreRowMajorOverTheAxes) {
  const RankInfo info = place(9);  // 1, 1, 1
  EXPECT_EQ(info.coordinate("a"), 1);
  EXPECT_EQ(info.coordinate("b"), 1);
  EXPECT_EQ(info.coordinate("c"), 1);
  EXPECT_EQ(info.group("a"), (std::vector<int64_t>{3, 9}));
  EXPECT_EQ(info.group("b"), (std::vector<int64_t>{7, 9, 11}));
  EXPECT_EQ(info.group("c"), (std::vector<int64_t>{8, 9}));
}

TEST(RankInfo, AJointAxisIsTheGroupAlongAnyOfItsAxes) {
  const RankInfo info = place(9);  // 1, 1, 1
  EXPECT_EQ(info.coordinate("a+c"), 3);
  EXPECT_EQ(info.group("a+c"), (std::vector<int64_t>{2, 3, 8, 9}));
  EXPECT_EQ(info.coordinate("b+c"), 3);
  EXPECT_EQ(info.group("b+c"), (std::vector<int64_t>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(info.group("a+b+c").size(), 12U);
  EXPECT_THROW(info.group("a+d"), InternalError);
}

TEST(RankInfo, ExpertAxesHaveGroupsOfTheSameRanks) {
  const RankInfo info{parse_mesh("dp_replicate=2, dp_shard=2, tp=4; edp=4, ep=2"), 13};
  EXPECT_EQ(info.group("ep"), (std::vector<int64_t>{12, 13}));
  EXPECT_EQ(info.group("edp"), (std::vector<int64_t>{9, 11, 13, 15}));
  EXPECT_EQ(info.group("edp+ep"), info.group("dp_shard+tp"));
  EXPECT_EQ(info.group("dp_replicate+edp"), (std::vector<int64_t>{1, 3, 5, 7, 9, 11, 13, 15}));
}

TEST(RankInfo, RefusesAnUnknownAxis) {
  EXPECT_THROW(place(0).coordinate("d"), InternalError);
  EXPECT_THROW(place(0).group("d"), InternalError);
}

}  // namespace
}  // namespace weft

#include "graph/flat.h"

#include <gtest/gtest.h>

#include "support/user_error.h"

namespace weft {
namespace {

TEST(Flat, EveryMemberStartsOnABlock) {
  const std::vector<Shape> shapes = {{3}, {1024}, {5, 205}, {}, {2, 1024}};
  EXPECT_EQ(flat_offsets(shapes), (std::vector<int64_t>{0, 1024, 2048, 4096, 5120}));
  EXPECT_EQ(flat_size(shapes), 7168);
}

TEST(Flat, RefusesMoreThanCanBeCounted) {
  const std::vector<Shape> shapes(9, Shape{(int64_t{1} << 60) - 1});
  expect_user_error(ExitCode::Config, "a flat buffer of 9 tensors has too many elements to count",
                    [&] { flat_size(shapes); });
}

TEST(Flat, NothingIsEmpty) {
  EXPECT_EQ(flat_size({}), 0);
  EXPECT_TRUE(flat_offsets({}).empty());
}

}  // namespace
}  // namespace weft

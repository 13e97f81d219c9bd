#include "runtime/comm/single_rank.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "runtime/comm/transfer.h"
#include "runtime/cpu/device.h"

namespace weft {
namespace {

TEST(SingleRank, IsTheOnlyOneAndWaitsForNobody) {
  Communicator& comm = single_rank();
  EXPECT_EQ(comm.rank(), 0);
  EXPECT_EQ(comm.ranks(), 1);
  EXPECT_FALSE(comm.is_supervised());
  comm.barrier();
  comm.abort("an error");
  EXPECT_EQ(comm.poll_error(), std::nullopt);
}

TEST(SingleRank, ExchangeReturnsItsOwnBytes) {
  const std::array<char, 3> own = {'a', 'b', 'c'};
  std::array<char, 3> all = {};
  single_rank().exchange(own, all);
  EXPECT_EQ(all, own);
  std::array<char, 6> two_ranks = {};
  EXPECT_THROW(single_rank().exchange(own, two_ranks), InternalError);
}

TEST(SingleRank, AllocatesFromTheDevice) {
  const auto device = make_host_device({.threads = 1});
  void* memory = single_rank().allocate(256, *device);
  ASSERT_NE(memory, nullptr);
  static_cast<char*>(memory)[255] = 1;
  single_rank().release(memory, *device);
}

TEST(SingleRank, RefusesCollectives) {
  const auto device = make_host_device({.threads = 1});
  EXPECT_THROW(single_rank().allocate_shared("dp_shard", 256, *device), InternalError);
  EXPECT_THROW(single_rank().all_reduce({.axis = "dp_shard"}, {}), InternalError);
  EXPECT_THROW(single_rank().all_gather_dim({.axis = "tp"}, {}, {}, 0), InternalError);
  EXPECT_THROW(single_rank().reduce_scatter_dim({.axis = "tp"}, {}, {}, 0), InternalError);
  EXPECT_THROW(single_rank().transfer({.axis = "cp"}, {}), InternalError);
}

}  // namespace
}  // namespace weft

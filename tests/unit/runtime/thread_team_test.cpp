#include "runtime/cpu/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "base/error.h"

namespace weft {
namespace {

TEST(ThreadTeam, RunsEveryTileOnce) {
  for (const int64_t threads : {1, 2, 3, 8}) {
    ThreadTeam team(threads);
    EXPECT_EQ(team.threads(), threads);
    for (const int64_t tiles : {0, 1, 2, 7, 1000}) {
      std::vector<int> counts(static_cast<size_t>(tiles), 0);
      team.run(tiles, [&](int64_t tile) { ++counts[static_cast<size_t>(tile)]; });
      EXPECT_EQ(counts, std::vector<int>(static_cast<size_t>(tiles), 1)) << threads << " threads";
    }
  }
}

TEST(ThreadTeam, ManyShortTasksInARow) {
  ThreadTeam team(3);
  std::vector<int64_t> values(5, 0);
  for (int64_t round = 0; round < 20000; ++round) {
    team.run(5, [&](int64_t tile) { values[static_cast<size_t>(tile)] += round; });
  }
  EXPECT_EQ(values, std::vector<int64_t>(5, int64_t{20000} * 19999 / 2));
}

TEST(ThreadTeam, EachThreadHasItsOwnScratch) {
  ThreadTeam team(3);
  std::atomic<int> torn{0};
  team.run(64, [&](int64_t tile, float* scratch) {
    const float mark = static_cast<float>(tile);
    std::fill(scratch, scratch + ThreadTeam::kScratchFloats, mark);
    for (int64_t i = 0; i < ThreadTeam::kScratchFloats; i += 997) {
      if (scratch[i] != mark) ++torn;
    }
  });
  EXPECT_EQ(torn, 0);
}

TEST(ThreadTeam, ThrowsTheErrorOfATileAndStaysUsable) {
  for (const int64_t threads : {1, 2, 3}) {
    ThreadTeam team(threads);
    EXPECT_THROW(team.run(100,
                          [](int64_t tile) {
                            if (tile == 17) throw std::runtime_error("tile 17");
                          }),
                 std::runtime_error);
    std::atomic<int64_t> sum{0};
    team.run(100, [&](int64_t tile) { sum += tile; });
    EXPECT_EQ(sum, 4950);
  }
}

TEST(ThreadTeam, RefusesNestedUse) {
  ThreadTeam team(2);
  EXPECT_THROW(team.run(2, [&](int64_t) { team.run(2, [](int64_t) {}); }), InternalError);
}

}  // namespace
}  // namespace weft

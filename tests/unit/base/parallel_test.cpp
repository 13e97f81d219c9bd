// Every index runs once, and errors do not depend on the number of threads.
#include "base/parallel.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/machine.h"

namespace weft {
namespace {

TEST(Parallel, EveryIndexIsWorkedOnOnce) {
  for (const int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> seen(100);
    parallel_for(threads, seen.size(), [&](int worker, size_t i) {
      EXPECT_LT(worker, threads);
      ++seen[i];
    });
    for (const auto& count : seen) EXPECT_EQ(count, 1);
  }
  parallel_for(3, 0, [](int, size_t) { FAIL(); });
}

TEST(Parallel, TheFirstFailureIsThrown) {
  for (const int threads : {1, 4}) {
    try {
      parallel_for(threads, 50, [](int, size_t i) {
        if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
      });
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "7");
    }
  }
}

TEST(Parallel, AThreadCountOutOfRangeIsRefused) {
  for (const int64_t threads : {-1, 4097}) {
    EXPECT_THROW(thread_count(threads), InternalError);
  }
}

TEST(Parallel, OnlyCoresThatMayBeUsedCount) {
  std::thread([] {  // with its own affinity, not that of the other tests
    cpu_set_t allowed;
    ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
    EXPECT_EQ(usable_cores(), CPU_COUNT(&allowed));
    int first = 0;
    while (!CPU_ISSET(first, &allowed)) ++first;
    CPU_ZERO(&allowed);
    CPU_SET(first, &allowed);
    ASSERT_EQ(::sched_setaffinity(0, sizeof allowed, &allowed), 0);
    EXPECT_EQ(usable_cores(), 1);
    EXPECT_EQ(thread_count(0), 1);
    EXPECT_EQ(thread_count(3), 3);
  })
      .join();
}

}  // namespace
}  // namespace weft

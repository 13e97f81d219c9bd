#include "base/machine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace weft {
namespace {

// Pages count once they are touched, whether private or shared.
TEST(ResidentBytes, CountsWhatIsTouched) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  constexpr int64_t kSlack = int64_t{8} << 20;  // of the system's accounting and of the test
  for (const int kind : {MAP_PRIVATE, MAP_SHARED}) {
    const int64_t before = resident_bytes();
    ASSERT_GT(before, 0);
    void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    EXPECT_LT(resident_bytes() - before, kSlack);
    std::memset(memory, 1, kBytes);
    EXPECT_NEAR(static_cast<double>(resident_bytes() - before), static_cast<double>(kBytes),
                static_cast<double>(kSlack));
    ::munmap(memory, kBytes);
    EXPECT_LT(resident_bytes() - before, kSlack);
  }
}

}  // namespace
}  // namespace weft

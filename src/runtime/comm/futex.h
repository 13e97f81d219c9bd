// Sleeping on a word of memory that processes may share. The wait of the C++ library has no timeout
// and makes no promise about shared memory.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace weft {

// Sleeps while the word equals `seen`, up to the timeout; may wake spuriously.
inline void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, int64_t milliseconds) {
  const timespec limit{.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

inline void futex_wake_all(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace weft

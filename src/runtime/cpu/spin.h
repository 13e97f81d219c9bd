// Waiting for a word that another thread changes: spin for a while, where a change costs only a
// cache line transfer, then sleep.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

// About 20 microseconds: for waits that may be long, when the other thread may need this core.
inline constexpr int kShortSpins = 1000;
// Some hundred microseconds, the longest tile of a kernel: for threads that finish one together.
inline constexpr int kLongSpins = 10000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns the word once it differs from `seen`. The thread that changes it calls notify, which
// makes a system call only when a thread sleeps.
inline uint32_t await_change(const std::atomic<uint32_t>& word, uint32_t seen, int spins) {
  for (int spin = 0; spin < spins; ++spin) {
    const uint32_t value = word.load(std::memory_order_acquire);
    if (value != seen) return value;
    relax();
  }
  word.wait(seen);
  return word.load();
}

}  // namespace weft

// Waiting for a word that another thread changes: a while on the processor, where a change costs no
// more than a cache line, then asleep.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

// About 20 microseconds: for what may take long, and whoever brings it may need this processor.
inline constexpr int kShortSpins = 1000;
// Some hundred microseconds, the longest tile of a kernel: for threads that end one together.
inline constexpr int kLongSpins = 10000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The word once it differs from `seen`. Whoever changes it calls notify, which is a system call
// only when somebody sleeps.
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

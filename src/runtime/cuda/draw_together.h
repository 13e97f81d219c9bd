// Several Philox blocks of one stream in a thread.
#pragma once

#include "base/philox.h"

namespace weft::cuda {

// Turns counters into the words drawn from them. Their rounds go together, so that each round's key
// is made once and none is kept.
template <int kCount>
__device__ void draw_together(PhiloxBlock (&block)[kCount], PhiloxKey key) {
  asm volatile("" : "+r"(key.word[0]), "+r"(key.word[1]));  // not a constant of the thread
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int n = 0; n < kCount; ++n) block[n] = philox_round(block[n], key);
    key = philox_next_key(key);
  }
}

}  // namespace weft::cuda

// Draws several Philox blocks of one stream in a thread.
#pragma once

#include "base/philox.h"

namespace weft::cuda {

// Turns counters into the words drawn from them. The rounds of all blocks are interleaved, so that
// each round's key is computed once and none is kept.
template <int kCount>
__device__ void philox_batch(PhiloxBlock (&block)[kCount], PhiloxKey key) {
  asm volatile("" : "+r"(key.word[0]), "+r"(key.word[1]));  // hides it from constant folding
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int n = 0; n < kCount; ++n) block[n] = philox_round(block[n], key);
    key = philox_next_key(key);
  }
}

}  // namespace weft::cuda

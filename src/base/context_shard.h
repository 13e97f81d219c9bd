// How ranks that share a sequence divide it: each has a chunk near the head and one near the tail,
// so that all of them do equal work under a causal mask. CMakeLists.txt
// defines WEFT_HOST_DEVICE for host and device code.
#pragma once

#include <cstdint>

namespace weft {

// One of the shards of a sequence. A shard holds `size` rows, or elements of rows: half of them
// near the head, half near the tail.
struct ContextShard {
  int64_t size = 1;
  int64_t shards = 1;
  int64_t index = 0;

  // Where number `at` of the shard is in the full sequence.
  WEFT_HOST_DEVICE constexpr int64_t in_full(int64_t at) const {
    const int64_t chunk = size / 2;
    return at < chunk ? index * chunk + at : (2 * shards - 1 - index) * chunk + at - chunk;
  }
};

}  // namespace weft

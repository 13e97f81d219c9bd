// How ranks that share a sequence divide it: each has a chunk near the head and one near the tail,
// so that all of them do equal work under a causal mask. CMakeLists.txt
// defines WEFT_HOST_DEVICE for host and device code.
#pragma once

#include <cstdint>

namespace weft {

// Neighbours in the full sequence: `size` rows from number `at` of a shard on, which begin at row
// `row` of the sequence.
struct ContextRun {
  int64_t at = 0;
  int64_t row = 0;
  int64_t size = 0;
};

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
  WEFT_HOST_DEVICE constexpr int64_t full_size() const { return size * shards; }

  // The runs of neighbours that the shard consists of.
  WEFT_HOST_DEVICE constexpr int64_t runs() const { return shards == 1 ? 1 : 2; }
  WEFT_HOST_DEVICE constexpr ContextRun run(int64_t number) const {
    const int64_t rows = size / runs();
    return {number * rows, in_full(number * rows), rows};
  }

  // The shard that lies `steps` ranks back in the ring of ranks.
  WEFT_HOST_DEVICE constexpr ContextShard back(int64_t steps) const {
    return {size, shards, (index + shards - steps) % shards};
  }
};

// The rows that a kv has for queries that are a shard: those of the shard `block` ranks back, or,
// if `blocks` is 1, the full sequence.
WEFT_HOST_DEVICE constexpr ContextShard keys_of(const ContextShard& queries, int64_t blocks,
                                                int64_t block) {
  return blocks > 1 ? queries.back(block) : ContextShard{queries.full_size()};
}

}  // namespace weft

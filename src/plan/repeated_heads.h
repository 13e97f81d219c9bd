// Which heads a tensor-parallel rank has if there are fewer key heads than ranks: every key and
// value head is repeated, so that the copies divide evenly. CMakeLists.txt defines
// WEFT_HOST_DEVICE for host and device code.
#pragma once

#include <cstdint>

#include "graph/op.h"

namespace weft {

// One shard of packed heads q|k|v, whose k and v are repeated.
struct RepeatedHeads {
  int64_t heads = 1;     // of q, in all shards
  int64_t kv_heads = 1;  // of k, and of v, before they are repeated
  int64_t repeats = 1;
  int64_t shards = 1;
  int64_t index = 0;  // of the shard

  WEFT_HOST_DEVICE constexpr int64_t q_heads() const { return heads / shards; }
  WEFT_HOST_DEVICE constexpr int64_t copies() const { return kv_heads * repeats / shards; }
  WEFT_HOST_DEVICE constexpr int64_t size() const { return q_heads() + 2 * copies(); }

  // The packed head that number `at` of the shard is a copy of.
  WEFT_HOST_DEVICE constexpr int64_t source(int64_t at) const {
    if (at < q_heads()) return index * q_heads() + at;
    const int64_t copy = at - q_heads();
    return heads + copy / copies() * kv_heads + (index * copies() + copy % copies()) / repeats;
  }

  // The shard's copies of a packed head: [begin, end), empty if other shards have them.
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  WEFT_HOST_DEVICE constexpr Range copies_of(int64_t head) const {
    if (head < heads) {
      const int64_t at = head - index * q_heads();
      return at >= 0 && at < q_heads() ? Range{at, at + 1} : Range{};
    }
    const int64_t kv = head - heads;
    const int64_t first = q_heads() + kv / kv_heads * copies();
    const int64_t begin = kv % kv_heads * repeats - index * copies();
    const int64_t low = begin > 0 ? begin : 0;
    const int64_t high = begin + repeats < copies() ? begin + repeats : copies();
    return low < high ? Range{first + low, first + high} : Range{};
  }
};

// The heads that a call of repeat_kv, or of its gradient, makes as shard `index`.
inline RepeatedHeads repeated_heads(const Call& call, int64_t index) {
  return {.heads = call.int_attr("heads"),
          .kv_heads = call.int_attr("kv_heads"),
          .repeats = call.int_attr("repeats"),
          .shards = call.int_attr("shards"),
          .index = index};
}

}  // namespace weft

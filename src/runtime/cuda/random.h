// Dropout decisions of a kernel: the same elements are dropped as on every other backend. Compiles
// for host and device.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/context_shard.h"
#include "base/philox.h"

namespace weft::cuda {

// How one dropout site uses its random words.
struct DropRule {
  uint32_t below = 0;  // words less than this drop their element
  float scale = 1;     // of the kept elements
  uint64_t stream = 0;
  bool sharded = false;  // the random state is that of one shard
  bool context = false;  // it is inside a shard over cp

  WEFT_HOST_DEVICE float apply(float value, uint32_t word) const {
    return word >= below ? value * scale : 0.0f;
  }
};

// Drops an element where unit_from_bits of its word is below the rate. `state_words` is the length
// of the random state.
inline DropRule drop_rule(double rate, int64_t stream, int64_t state_words) {
  const double units = std::ceil(static_cast<double>(static_cast<float>(rate)) * 0x1p24);
  return {static_cast<uint32_t>(units) << 8, static_cast<float>(1.0 / (1.0 - rate)),
          static_cast<uint64_t>(stream), state_words > 4, state_words > 6};
}

// The source of a site's random words: created once, drawn from many times.
struct DropStream {
  PhiloxKey key;
  uint32_t step;
  int32_t first_sample;
  int32_t shard = 0;
  int32_t shards = 1;
  int32_t context_shard = 0;
  int32_t context_shards = 1;

  // The Philox counter for elements `local` to `local` + 3 of a tensor with `per_sample` elements
  // per sample; both are multiples of four. Not for shards over cp.
  WEFT_HOST_DEVICE PhiloxBlock counter(int64_t local, int64_t per_sample) const {
    return random_counter(step, element(local, per_sample) / 4);
  }
  WEFT_HOST_DEVICE uint32_t word(int64_t local, int64_t per_sample) const {
    return random_bits(key, step, element(local, per_sample));
  }
  // The element's index over all samples of the batch. Samples follow each other if they are not
  // sharded, which saves a division.
  WEFT_HOST_DEVICE uint64_t element(int64_t local, int64_t per_sample) const {
    if (shards == 1 && context_shards == 1) {
      return static_cast<uint64_t>(first_sample * per_sample + local);
    }
    const int64_t sample = local / per_sample;
    if (context_shards == 1) {
      return static_cast<uint64_t>((shard_of(sample) - sample) * per_sample + local);
    }
    const ContextShard own{shards * per_sample, context_shards, context_shard};
    const int64_t at = own.in_full((shard - sample) * per_sample + local);
    return static_cast<uint64_t>((first_sample + sample) * own.size * own.shards + at);
  }
  // The number of the local shard of a sample, among all shards of all samples; not over cp.
  WEFT_HOST_DEVICE int64_t shard_of(int64_t sample) const {
    return (first_sample + sample) * shards + shard;
  }
};

// `rng` = {seed low, seed high, step, first sample}, and if `sharded` {..., shard, shards}, and for
// a shard over cp {..., shard over cp, shards over cp}, in device memory. Kernels pass a constant
// `sharded` where that makes drawing faster; it is true over cp.
WEFT_HOST_DEVICE inline DropStream drop_stream(const int32_t* rng, const DropRule& rule,
                                               bool sharded) {
  const uint64_t seed =
      static_cast<uint64_t>(static_cast<uint32_t>(rng[1])) << 32 | static_cast<uint32_t>(rng[0]);
  return {random_key(seed, rule.stream),
          static_cast<uint32_t>(rng[2]),
          rng[3],
          sharded ? rng[4] : 0,
          sharded ? rng[5] : 1,
          sharded && rule.context ? rng[6] : 0,
          sharded && rule.context ? rng[7] : 1};
}
WEFT_HOST_DEVICE inline DropStream drop_stream(const int32_t* rng, const DropRule& rule) {
  return drop_stream(rng, rule, rule.sharded);
}

}  // namespace weft::cuda

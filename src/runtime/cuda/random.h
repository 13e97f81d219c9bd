// Dropout decisions of a kernel: the same elements are dropped as on every other backend. Compiles
// for host and device.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/philox.h"

namespace weft::cuda {

// How one dropout site uses its random words.
struct DropRule {
  uint32_t below = 0;  // words less than this drop their element
  float scale = 1;     // of the kept elements
  uint64_t stream = 0;

  WEFT_HOST_DEVICE float apply(float value, uint32_t word) const {
    return word >= below ? value * scale : 0.0f;
  }
};

// Drops an element where unit_from_bits of its word is below the rate.
inline DropRule drop_rule(double rate, int64_t stream) {
  const double units = std::ceil(static_cast<double>(static_cast<float>(rate)) * 0x1p24);
  return {static_cast<uint32_t>(units) << 8, static_cast<float>(1.0 / (1.0 - rate)),
          static_cast<uint64_t>(stream)};
}

// The source of a site's random words: created once, drawn from many times.
struct DropStream {
  PhiloxKey key;
  uint32_t step;
  int32_t first_sample;

  // The Philox counter for elements `local` to `local` + 3 of a tensor with `per_sample` elements
  // per sample; both are multiples of four.
  WEFT_HOST_DEVICE PhiloxBlock counter(int64_t local, int64_t per_sample) const {
    return random_counter(step, element(local, per_sample) / 4);
  }
  WEFT_HOST_DEVICE PhiloxBlock block(int64_t local, int64_t per_sample) const {
    return philox4x32_10(counter(local, per_sample), key);
  }
  WEFT_HOST_DEVICE uint32_t word(int64_t local, int64_t per_sample) const {
    return random_bits(key, step, element(local, per_sample));
  }
  // The element's index over all samples of the batch.
  WEFT_HOST_DEVICE uint64_t element(int64_t local, int64_t per_sample) const {
    return static_cast<uint64_t>(first_sample * per_sample + local);
  }
};

// `rng` = {seed low, seed high, step, first sample} in device memory.
WEFT_HOST_DEVICE inline DropStream drop_stream(const int32_t* rng, const DropRule& rule) {
  const uint64_t seed =
      static_cast<uint64_t>(static_cast<uint32_t>(rng[1])) << 32 | static_cast<uint32_t>(rng[0]);
  return {random_key(seed, rule.stream), static_cast<uint32_t>(rng[2]), rng[3]};
}

}  // namespace weft::cuda

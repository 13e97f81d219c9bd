// Dropout decisions inside a kernel: the same elements are dropped as on any other backend.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace weft {

// Rate and stream of one dropout site. `rng` = {seed low, seed high, step, first sample} in device
// memory; nullptr: nothing is dropped.
struct Dropout {
  const int32_t* rng = nullptr;
  float rate = 0;
  float scale = 1;
  uint64_t stream = 0;
};

inline Dropout make_dropout(const int32_t* rng, double rate, int64_t stream) {
  return {rng, static_cast<float>(rate), static_cast<float>(1.0 / (1.0 - rate)),
          static_cast<uint64_t>(stream)};
}

// Factor of element `local` when every sample has `per_sample` elements: 0 or 1 / (1 - rate).
__device__ inline float dropout_factor(const Dropout& site, int64_t local, int64_t per_sample) {
  if (site.rng == nullptr) return 1;
  const uint64_t seed = static_cast<uint64_t>(static_cast<uint32_t>(site.rng[1])) << 32 |
                        static_cast<uint32_t>(site.rng[0]);
  const int64_t element = site.rng[3] * per_sample + local;
  const float unit = random_unit(random_key(seed, site.stream), static_cast<uint32_t>(site.rng[2]),
                                 static_cast<uint64_t>(element));
  return unit >= site.rate ? site.scale : 0.0f;
}

}  // namespace weft

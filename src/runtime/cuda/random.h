// Dropout decisions inside a kernel: the same elements are dropped as on any other backend.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace weft::cuda {

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

// `value` scaled or dropped: it is element `local` of a tensor with `per_sample` elements a sample.
__device__ inline float drop(const Dropout& site, float value, int64_t local, int64_t per_sample) {
  if (site.rng == nullptr) return value;
  const uint64_t seed = static_cast<uint64_t>(static_cast<uint32_t>(site.rng[1])) << 32 |
                        static_cast<uint32_t>(site.rng[0]);
  const int64_t element = site.rng[3] * per_sample + local;
  const float unit = random_unit(random_key(seed, site.stream), static_cast<uint32_t>(site.rng[2]),
                                 static_cast<uint64_t>(element));
  return unit >= site.rate ? value * site.scale : 0.0f;
}

}  // namespace weft::cuda

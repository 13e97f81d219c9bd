// Random words for a run of consecutive elements, identical to those of base/philox.h for single
// elements, and the dropout based on them.
#pragma once

#include <cstdint>

#include "base/philox.h"
#include "plan/kernel.h"

namespace weft {

// The random state {seed low, seed high, step, first sample} of a stream, with the rate.
struct Dropout {
  PhiloxKey key = {};
  uint64_t step = 0;
  int64_t first_sample = 0;
  float rate = 0;
  float scale = 1;  // 1 / (1 - rate)
};

Dropout make_dropout(const Tensor& rng, int64_t stream, double rate);

// to[i] = from[i] * scale where the element `first` + i is kept, else 0; `to` may be `from`.
void apply_dropout(const Dropout& dropout, uint64_t first, int64_t n, const float* from, float* to);

}  // namespace weft

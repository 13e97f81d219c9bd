// Random words for a run of consecutive elements, identical to those of base/philox.h for single
// elements, and the dropout based on them.
#pragma once

#include <cstdint>

#include "base/philox.h"
#include "plan/kernel.h"

namespace weft {

// The random state {seed low, seed high, step, first sample} of a stream, with the rate. Six words
// also have {shard, shards}, eight words {shard, shards} over cp as well.
struct Dropout {
  PhiloxKey key = {};
  uint64_t step = 0;
  int64_t first_sample = 0;
  int64_t shard = 0, shards = 1;
  int64_t context_shard = 0, context_shards = 1;  // over cp
  float rate = 0;
  float scale = 1;  // 1 / (1 - rate)

  // The number of the local shard of a sample, among all shards of all samples; not over cp.
  int64_t shard_of(int64_t sample) const { return (first_sample + sample) * shards + shard; }
};

Dropout make_dropout(const Tensor& rng, int64_t stream, double rate);

// to[i] = from[i] * scale where the element `first` + i is kept, else 0; `to` may be `from`.
void apply_dropout(const Dropout& dropout, uint64_t first, int64_t n, const float* from, float* to);

// The same for elements [offset, offset + n) of a tensor with `per_sample` elements per sample.
void apply_dropout_at(const Dropout& dropout, int64_t per_sample, int64_t offset, int64_t n,
                      const float* from, float* to);

}  // namespace weft

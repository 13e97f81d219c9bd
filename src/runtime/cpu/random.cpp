#include "runtime/cpu/random.h"

#include <algorithm>

#include "runtime/cpu/simd.h"

namespace weft {

namespace {

constexpr int64_t kRun = 1024;

// The words of `blocks` blocks from `first` on, four per block.
WEFT_CLONES void random_words(PhiloxKey key, uint64_t step, uint64_t first, int64_t blocks,
                              uint32_t* words) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < blocks; ++i) {
    const PhiloxBlock block = random_block(key, step, first + static_cast<uint64_t>(i));
    for (int w = 0; w < 4; ++w) words[4 * i + w] = block.word[w];
  }
}

WEFT_CLONES void keep(const uint32_t* words, float rate, float scale, int64_t n, const float* from,
                      float* to) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) {
    to[i] = unit_from_bits(words[i]) >= rate ? from[i] * scale : 0.0f;
  }
}

}  // namespace

Dropout make_dropout(const Tensor& rng, int64_t stream, double rate) {
  const int32_t* state = rng.as<int32_t>();
  const bool sharded = rng.elements() > 4;
  const uint64_t seed = static_cast<uint32_t>(state[0]) | uint64_t{static_cast<uint32_t>(state[1])}
                                                              << 32;
  return {.key = random_key(seed, static_cast<uint64_t>(stream)),
          .step = static_cast<uint32_t>(state[2]),
          .first_sample = state[3],
          .shard = sharded ? state[4] : 0,
          .shards = sharded ? state[5] : 1,
          .context_shard = rng.elements() > 6 ? state[6] : 0,
          .context_shards = rng.elements() > 6 ? state[7] : 1,
          .rate = static_cast<float>(rate),
          .scale = static_cast<float>(1.0 / (1.0 - rate))};
}

void apply_dropout(const Dropout& dropout, uint64_t first, int64_t n, const float* from,
                   float* to) {
  uint32_t words[kRun + 8];
  for (int64_t done = 0; done < n; done += kRun) {
    const int64_t run = std::min(kRun, n - done);
    const uint64_t start = first + static_cast<uint64_t>(done);
    const int64_t skipped = static_cast<int64_t>(start % 4);
    random_words(dropout.key, dropout.step, start / 4, (skipped + run + 3) / 4, words);
    keep(words + skipped, dropout.rate, dropout.scale, run, from + done, to + done);
  }
}

void apply_dropout_at(const Dropout& dropout, int64_t per_sample, int64_t offset, int64_t n,
                      const float* from, float* to) {
  if (dropout.shards == 1 && dropout.context_shards == 1) {
    const int64_t first = dropout.first_sample * per_sample + offset;
    return apply_dropout(dropout, static_cast<uint64_t>(first), n, from, to);
  }
  // Between the local shards of two samples lie those of other ranks.
  for (int64_t done = 0; done < n;) {
    const int64_t sample = (offset + done) / per_sample;
    const int64_t element = (offset + done) % per_sample;
    const ContextShard shard{dropout.shards * per_sample, dropout.context_shards,
                             dropout.context_shard};
    const int64_t at = dropout.shard * per_sample + element;
    const int64_t left = at < shard.size / 2 ? shard.size / 2 - at : per_sample;  // of a chunk
    const int64_t run = std::min({n - done, per_sample - element, left});
    const int64_t first = (dropout.first_sample + sample) * shard.size * shard.shards;
    apply_dropout(dropout, static_cast<uint64_t>(first + shard.in_full(at)), run, from + done,
                  to + done);
    done += run;
  }
}

}  // namespace weft

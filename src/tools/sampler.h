// Samples the next token from logits. A sample is a pure function of the logits, the options and
// its index, so it can be reproduced.
#pragma once

#include <cstdint>
#include <span>

namespace weft {

struct SamplerOptions {
  double temperature = 1.0;  // 0: always the most likely token
  int64_t top_k = 0;         // only the k most likely tokens; 0: all
  double top_p = 1.0;        // only the most likely tokens with this total probability
  uint64_t seed = 0;
};

// Throws UserError for invalid values.
void check_sampler(const SamplerOptions& options);

// The token with sample number `index`. Among equal logits the smaller token comes first. Logits of
// -infinity are never chosen; NaN, or no finite logit at all, is a UserError.
int64_t sample_token(std::span<const float> logits, const SamplerOptions& options, uint64_t index);

}  // namespace weft

#include "tools/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"

namespace weft {
namespace {

// The tokens that top_k keeps, most likely first.
std::vector<int64_t> ranked(std::span<const float> logits, const SamplerOptions& options) {
  std::vector<int64_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto likelier = [&](int64_t a, int64_t b) {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto size = static_cast<int64_t>(tokens.size());
  const int64_t kept = options.top_k == 0 ? size : std::min(options.top_k, size);
  std::partial_sort(tokens.begin(), tokens.begin() + kept, tokens.end(), likelier);
  tokens.resize(static_cast<size_t>(kept));
  return tokens;
}

// How many of the leading weights it takes to reach the fraction top_p of their sum.
size_t nucleus(const std::vector<double>& weights, double top_p) {
  if (top_p >= 1) return weights.size();
  const double wanted = top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  double reached = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    reached += weights[i];
    if (reached >= wanted) return i + 1;
  }
  return weights.size();
}

}  // namespace

void check_sampler(const SamplerOptions& options) {
  USER_CHECK(options.temperature >= 0 && std::isfinite(options.temperature),
             "command line: --temperature ", format_double(options.temperature),
             " is out of range; expected 0 or more");
  USER_CHECK(options.top_k >= 0, "command line: --top-k ", options.top_k,
             " is out of range; expected 1 or more, or 0 for all tokens");
  USER_CHECK(options.top_p > 0 && options.top_p <= 1, "command line: --top-p ",
             format_double(options.top_p), " is out of range; expected above 0 and at most 1");
}

int64_t sample_token(std::span<const float> logits, const SamplerOptions& options, uint64_t index) {
  const bool usable =
      std::none_of(logits.begin(), logits.end(),
                   [](float x) { return std::isnan(x) || x == INFINITY; }) &&
      std::any_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); });
  if (!usable) {
    throw UserError(ExitCode::NonFinite, "the model's logits are not finite; check its weights");
  }
  if (options.temperature == 0) {
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  }

  const std::vector<int64_t> tokens = ranked(logits, options);
  const double top = logits[static_cast<size_t>(tokens.front())];
  std::vector<double> weights;
  for (const int64_t token : tokens) {
    weights.push_back(std::exp((logits[static_cast<size_t>(token)] - top) / options.temperature));
  }
  weights.resize(nucleus(weights, options.top_p));

  const PhiloxKey key = random_key(options.seed, hash_text("sample"));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double left = total * static_cast<double>(random_bits(key, 0, index)) * 0x1p-32;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (left < weights[i]) return tokens[i];
    left -= weights[i];
  }
  return tokens.front();  // rounding used up the sum
}

}  // namespace weft

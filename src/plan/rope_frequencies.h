// The frequencies of a call of rope.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "graph/op.h"

namespace weft {

// The elements of a head that are rotated.
inline int64_t rotary_dim(const Call& call) {
  const int64_t part = call.int_attr("rotary_dim");
  return part > 0 ? part : call.int_attr("head_dim");
}

namespace rope {

// Which frequencies stay as they are while a factor divides the others: those of pairs up to index
// `first`, and a shrinking share of those up to `last`.
struct YarnRamp {
  double first, last;

  explicit YarnRamp(const Call& call) {
    const double context = static_cast<double>(call.int_attr("original_max_position"));
    const double pairs = static_cast<double>(rotary_dim(call)) / 2;
    // The pair that turns `turns` times in the original context.
    const auto pair = [&](double turns) {
      return pairs * std::log(context / (2 * std::numbers::pi * turns)) /
             std::log(call.double_attr("theta"));
    };
    first = pair(call.double_attr("high_freq_factor"));
    last = pair(call.double_attr("low_freq_factor"));
    if (call.bool_attr("truncate")) {
      first = std::floor(first);
      last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, 2 * pairs - 1);
    if (first == last) last += 0.001;
  }

  double kept(int64_t i) const {
    return std::clamp((last - static_cast<double>(i)) / (last - first), 0.0, 1.0);
  }
};

// The same for Llama 3.1, by how often a frequency turns in the original context.
inline double llama3_kept(const Call& call, double frequency) {
  const double low = call.double_attr("low_freq_factor");
  const double high = call.double_attr("high_freq_factor");
  const double context = static_cast<double>(call.int_attr("original_max_position"));
  const double turns = context * frequency / (2 * std::numbers::pi);
  if (turns > high) return 1;
  return turns < low || low == high ? 0 : (turns - low) / (high - low);
}

}  // namespace rope

// The angle per position of every pair of a head.
inline std::vector<double> rope_frequencies(const Call& call) {
  const auto dim = static_cast<double>(rotary_dim(call));
  const double factor = call.double_attr("factor");
  const rope::YarnRamp ramp(call);
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rotary_dim(call) / 2; ++i) {
    double frequency = std::pow(call.double_attr("theta"), -2.0 * static_cast<double>(i) / dim);
    if (factor > 0) {
      const double kept =
          call.bool_attr("yarn") ? ramp.kept(i) : rope::llama3_kept(call, frequency);
      frequency = (1 - kept) * frequency / factor + kept * frequency;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

// What queries at a position are multiplied by in a call of scale_queries.
inline float query_scale(const Call& call, int64_t position) {
  const int64_t full = (position + 1) / call.int_attr("floor");
  const auto steps = static_cast<double>(full);
  return static_cast<float>(1 + call.double_attr("scale") * std::log1p(steps));
}

}  // namespace weft

// Rotary positions, and queries scaled by position.
#include <cmath>
#include <numbers>

#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

// The elements of a head that are rotated.
int64_t rotary_dim(const Call& call) {
  const int64_t part = call.int_attr("rotary_dim");
  return part > 0 ? part : call.int_attr("head_dim");
}

// The pair, as a fraction of an index, that turns `turns` times in the original context.
double pair_that_turns(const Call& call, double turns) {
  const double context = static_cast<double>(call.int_attr("original_max_position"));
  return static_cast<double>(rotary_dim(call)) *
         std::log(context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(call.double_attr("theta")));
}

// How much of the frequency of pair `i` is divided by the factor: 0 for fast pairs, 1 for slow
// ones, a ramp over the index between them.
double yarn_ramp(const Call& call, int64_t i) {
  double first = pair_that_turns(call, call.double_attr("high_freq_factor"));
  double last = pair_that_turns(call, call.double_attr("low_freq_factor"));
  if (call.bool_attr("truncate")) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(rotary_dim(call) - 1));
  if (first == last) last += 0.001;
  return std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
}

// Rotations per position of pair `i`.
double frequency(const Call& call, int64_t i) {
  const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim(call));
  const double base = std::pow(call.double_attr("theta"), exponent);
  const double factor = call.double_attr("factor");
  if (factor <= 0) return base;
  if (call.bool_attr("yarn")) {
    const double ramp = yarn_ramp(call, i);
    return ramp * base / factor + (1 - ramp) * base;
  }
  const double low = call.double_attr("low_freq_factor");
  const double high = call.double_attr("high_freq_factor");
  const double turns =
      static_cast<double>(call.int_attr("original_max_position")) * base / (2 * std::numbers::pi);
  if (turns > high) return base;
  if (turns < low || low == high) return base / factor;
  const double smooth = (turns - low) / (high - low);
  return (1 - smooth) * base / factor + smooth * base;
}

// The position of every row.
std::vector<int32_t> positions_of(const Launch& launch) {
  if (launch.operands.size() > 1) return read_ints(launch.operands[1]);
  const Tensor& x = launch.operands[0];
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < x.shape[0] * x.shape[1]; ++row) {
    positions.push_back(static_cast<int32_t>(row % x.shape[1]));
  }
  return positions;
}

}  // namespace

void rope(const Launch& launch) {
  const Tensor& x = launch.operands[0];
  const Call& call = *launch.call;
  const int64_t heads = call.int_attr("heads"), head_dim = call.int_attr("head_dim");
  const int64_t rotated = rotary_dim(call);
  const bool interleaved = call.bool_attr("interleaved");
  const double sign = call.bool_attr("inverse") ? -1.0 : 1.0;
  const double magnitude = call.double_attr("magnitude");
  const std::vector<int32_t> positions = positions_of(launch);
  Values y = read(x);
  for (size_t row = 0; row < positions.size(); ++row) {
    for (int64_t i = 0; i < rotated / 2; ++i) {
      const double angle = static_cast<double>(positions[row]) * frequency(call, i);
      // Every backend keeps these tables in f32.
      const double cosine = static_cast<float>(magnitude * std::cos(angle));
      const double sine =
          sign * static_cast<double>(static_cast<float>(magnitude * std::sin(angle)));
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t begin =
            static_cast<int64_t>(row) * x.shape[2] + (head + 1) * head_dim - rotated;
        double& first = y[static_cast<size_t>(begin + (interleaved ? 2 * i : i))];
        double& second =
            y[static_cast<size_t>(begin + (interleaved ? 2 * i + 1 : rotated / 2 + i))];
        const double kept = first;
        first = kept * cosine - second * sine;
        second = second * cosine + kept * sine;
      }
    }
  }
  write(launch.results[0], y);
}

void scale_queries(const Launch& launch) {
  const Tensor& x = launch.operands[0];
  const int64_t width = launch.call->int_attr("heads") * launch.call->int_attr("head_dim");
  const std::vector<int32_t> positions = positions_of(launch);
  Values y = read(x);
  for (size_t row = 0; row < positions.size(); ++row) {
    const int64_t steps = (positions[row] + 1) / launch.call->int_attr("floor");
    // Every backend keeps it in f32.
    const double factor = static_cast<float>(1 + launch.call->double_attr("scale") *
                                                     std::log1p(static_cast<double>(steps)));
    for (int64_t i = 0; i < width; ++i) {
      y[row * static_cast<size_t>(x.shape[2]) + static_cast<size_t>(i)] *= factor;
    }
  }
  write(launch.results[0], y);
}

}  // namespace weft::reference

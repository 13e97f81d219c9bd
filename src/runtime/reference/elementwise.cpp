// Elementwise ops, one element at a time.
#include <cmath>
#include <numbers>

#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

constexpr double kCubic = 0.044715;

// sqrt(2/pi), the factor of the tanh form of gelu.
double inner_factor() {
  return std::sqrt(2.0 / std::numbers::pi);
}

}  // namespace

void add(const Launch& launch) {
  Values y = read(launch.operands[0]);
  const Values b = read(launch.operands[1]);
  for (size_t i = 0; i < y.size(); ++i) y[i] += b[i];
  write(launch.results[0], y);
}

void cast(const Launch& launch) {
  write(launch.results[0], read(launch.operands[0]));
}

void gelu(const Launch& launch) {
  Values y = read(launch.operands[0]);
  for (double& value : y) {
    const double x = value;
    value = 0.5 * x * (1.0 + std::tanh(inner_factor() * (x + kCubic * x * x * x)));
  }
  write(launch.results[0], y);
}

void gelu_grad(const Launch& launch) {
  Values dx = read(launch.operands[0]);
  const Values all_x = read(launch.operands[1]);
  for (size_t i = 0; i < dx.size(); ++i) {
    const double x = all_x[i];
    const double t = std::tanh(inner_factor() * (x + kCubic * x * x * x));
    const double inner_slope = inner_factor() * (1.0 + 3.0 * kCubic * x * x);
    dx[i] *= 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope;
  }
  write(launch.results[0], dx);
}

void dropout(const Launch& launch) {
  const Tensor& x = launch.operands[0];
  const DropoutMask mask(read_ints(launch.operands[1]), launch.call->double_attr("rate"),
                         launch.call->int_attr("stream"));
  Values y = read(x);
  const int64_t samples = x.shape.at(0);
  const int64_t per_sample = samples == 0 ? 0 : x.elements() / samples;
  for (int64_t s = 0; s < samples; ++s) {
    for (int64_t e = 0; e < per_sample; ++e) {
      const double factor = mask.factor(s, e, per_sample);
      double& value = y[static_cast<size_t>(s * per_sample + e)];
      value = factor == 0 ? 0 : value * factor;
    }
  }
  write(launch.results[0], y);
}

void shard_rng(const Launch& launch) {
  const bool head_tail = launch.call->bool_attr("head_tail");
  std::vector<int32_t> words = read_ints(launch.operands[0]);
  if (words.size() == 4) words.insert(words.end(), {0, 1});
  if (head_tail) words.insert(words.end(), {0, 1});
  words[head_tail ? 6 : 4] = read_ints(launch.operands[1])[0];
  words[head_tail ? 7 : 5] = static_cast<int32_t>(launch.call->int_attr("shards"));
  std::copy(words.begin(), words.end(), launch.results[0].as<int32_t>());
}

}  // namespace weft::reference

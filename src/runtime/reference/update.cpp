// Gradient accumulation, the order-independent norm, clipping and AdamW. Results may alias the
// operands they overwrite, so everything is read first.
#include <algorithm>
#include <cmath>

#include "base/exact_sum.h"
#include "base/loss_scale.h"
#include "base/tree_level.h"
#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

// The f32 sum of squares of up to kFlatBlock elements, padded with zeros, added pairwise.
float block_square_sum(const Values& g, size_t first) {
  std::vector<float> sums(static_cast<size_t>(kFlatBlock), 0.0f);
  for (size_t i = 0; i < sums.size() && first + i < g.size(); ++i) {
    const float value = static_cast<float>(g[first + i]);
    sums[i] = value * value;
  }
  for (size_t half = sums.size() / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  return sums[0];
}

// Adds a block's value to the words bit by bit; bit b of word k weighs 2^(32 k + b - 160).
void add_exactly(float value, std::vector<int64_t>& words) {
  if (!std::isfinite(value)) {
    words[kNonFiniteWord] += 1;
    return;
  }
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(value), &exponent);
  const auto mantissa = static_cast<int64_t>(std::ldexp(fraction, 24));
  for (int bit = 0; bit < 24; ++bit) {
    if ((mantissa >> bit & 1) == 0) continue;
    const int place = exponent - 24 + bit - kExactSumExponent;
    words[static_cast<size_t>(place / 32)] += int64_t{1} << (place % 32);
  }
}

// Whether an element of a flat tensor lies in one of the pairs begin,end; an empty list means
// everywhere.
bool decays(const std::vector<int64_t>& ranges, int64_t element) {
  for (size_t i = 0; i < ranges.size(); i += 2) {
    if (ranges[i] <= element && element < ranges[i + 1]) return true;
  }
  return ranges.empty();
}

}  // namespace

void accumulate(const Launch& launch) {
  const Values acc = read(launch.operands[0]);
  Values sum = read(launch.operands[1]);
  const int64_t level = launch.call->int_attr("level");
  const AccumulateAction action = accumulate_action(level, read_ints(launch.operands[2])[0]);
  for (size_t i = 0; i < sum.size(); ++i) {
    if (action == AccumulateAction::Keep) sum[i] = acc[i];
    if (action == AccumulateAction::Add) sum[i] += acc[i];
  }
  write(launch.results[0], sum);
}

void square_sum(const Launch& launch) {
  std::vector<int64_t> words(kExactSumWords, 0);
  for (const Tensor& operand : launch.operands) {
    const Values g = read(operand);
    for (size_t first = 0; first < g.size(); first += static_cast<size_t>(kFlatBlock)) {
      add_exactly(block_square_sum(g, first), words);
    }
  }
  std::copy(words.begin(), words.end(), launch.results[0].as<int64_t>());
}

void norm(const Launch& launch) {
  const double scale = launch.operands.size() > 1 ? read(launch.operands[1])[0] : 1.0;
  write(launch.results[0], {std::sqrt(exact_total(launch.operands[0].as<int64_t>())) / scale});
}

void clip(const Launch& launch) {
  const double norm = read(launch.operands[0])[0];
  const int32_t count = read_ints(launch.operands[1])[0];
  const double scale = launch.operands.size() > 2 ? read(launch.operands[2])[0] : 1.0;
  const double max_norm = launch.call->double_attr("max_norm");
  double coefficient = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  const bool updates = std::isfinite(norm) && norm >= 0;
  if (!updates) coefficient = 0;
  write(launch.results[0], {coefficient / scale});
  *launch.results[1].as<int32_t>() = updates ? count + 1 : count;
}

void update_scale(const Launch& launch) {
  double scale = read(launch.operands[0])[0];
  int32_t good = read_ints(launch.operands[1])[0] + 1;
  const double norm = read(launch.operands[2])[0];
  if (norm < 0) return;
  const bool finite = std::isfinite(norm);
  if (!finite) scale *= launch.call->double_attr("backoff");
  if (finite && good >= launch.call->int_attr("interval")) {
    scale *= launch.call->double_attr("growth");
    good = 0;
  }
  write(launch.results[0], {std::clamp(scale, kMinLossScale, kMaxLossScale)});
  *launch.results[1].as<int32_t>() = finite ? good : 0;
}

void adamw(const Launch& launch) {
  Values w = read(launch.operands[0]);
  const Values g = read(launch.operands[1]);
  Values m = read(launch.operands[2]);
  Values v = read(launch.operands[3]);
  const double lr = read(launch.operands[4])[0];
  const double coefficient = read(launch.operands[5])[0];
  const int32_t count = read_ints(launch.operands[6])[0];
  const Call& call = *launch.call;
  const double beta1 = call.double_attr("beta1");
  const double beta2 = call.double_attr("beta2");
  const bool keeps_low = launch.results.size() > 3;  // adamw_cast
  const size_t coordinate = keeps_low ? 8 : 7;
  const int64_t first =
      launch.operands.size() > coordinate
          ? read_ints(launch.operands[coordinate])[0] * launch.operands[0].elements()
          : 0;
  const double correction1 = 1.0 - std::pow(beta1, count);
  const double correction2 = 1.0 - std::pow(beta2, count);
  for (size_t i = 0; i < w.size() && coefficient != 0; ++i) {
    const double gradient = g[i] * coefficient;
    m[i] = beta1 * m[i] + (1.0 - beta1) * gradient;
    v[i] = beta2 * v[i] + (1.0 - beta2) * gradient * gradient;
    const double size = std::sqrt(v[i] / correction2) + call.double_attr("eps");
    if (decays(call.ints_attr("decayed"), first + static_cast<int64_t>(i))) {
      w[i] -= lr * call.double_attr("decay") * w[i];
    }
    w[i] -= lr * (m[i] / correction1) / size;
  }
  write(launch.results[0], w);
  write(launch.results[1], m);
  write(launch.results[2], v);
  // Rounded from the rounded master weights, as a cast would.
  if (keeps_low) {
    const Tensor& from = coefficient != 0 ? launch.results[0] : launch.operands[7];
    write(launch.results[3], read(from));
  }
}

}  // namespace weft::reference

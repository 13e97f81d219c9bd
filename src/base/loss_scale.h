// The dynamic loss scale of float16 training: it grows after many good steps and shrinks when a
// gradient is not finite. Factors are powers of two, so scaling never rounds.
#pragma once

#include <cstdint>

#include "base/half.h"

namespace weft {

// A gradient that overflows without any scale is not helped by a smaller one.
inline constexpr double kMinLossScale = 1;
// Leaves room for 1 / scale and for scaled values in f32.
inline constexpr double kMaxLossScale = 0x1p64;

struct LossScaleRule {
  double growth = 2;
  double backoff = 0.5;
  int64_t interval = 2000;  // good steps in a row until it grows
};

struct LossScale {
  float scale = 1;
  int32_t good = 0;  // good steps since it last changed
};

// The scale of the next step.
WEFT_HOST_DEVICE inline LossScale next_loss_scale(const LossScale& now, bool finite,
                                                  const LossScaleRule& rule) {
  if (!finite) {
    const double smaller = now.scale * rule.backoff;
    return {static_cast<float>(smaller < kMinLossScale ? kMinLossScale : smaller), 0};
  }
  if (now.good + 1 < rule.interval) return {now.scale, now.good + 1};
  const double larger = now.scale * rule.growth;
  return {static_cast<float>(larger > kMaxLossScale ? kMaxLossScale : larger), 0};
}

}  // namespace weft

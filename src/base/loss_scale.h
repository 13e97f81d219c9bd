// The dynamic loss scale of float16 training: it grows after many good steps and shrinks when a
// gradient is not finite. Factors are powers of two, so scaling never rounds.
#pragma once

#include <cstdint>

#include "base/half.h"

namespace weft {

// A gradient that overflows at scale 1 would not get better at a smaller scale.
inline constexpr double kMinLossScale = 1;
// Leaves room in f32 for 1 / scale and for scaled values.
inline constexpr double kMaxLossScale = 0x1p64;

struct LossScaleRule {
  double growth = 2;
  double backoff = 0.5;
  int64_t interval = 2000;  // good steps in a row before the scale grows
};

struct LossScale {
  float scale = 1;
  int32_t good = 0;  // good steps since the last change
};

// The scale for the next step.
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

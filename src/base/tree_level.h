// Sums as balanced binary trees. Numbers that are all available are summed by halves. Micro-batches
// are summed as they arrive, like a binary counter with one partial sum per bit: adding one carries
// through the bits that are set.
#pragma once

#include <bit>
#include <cstdint>

#include "base/half.h"

namespace weft {

// The balanced binary tree over [0, n): split at the largest power of two below n.
inline int64_t tree_split(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)) / 2);
}

inline constexpr int64_t kMaxTreeLevels = 31;

// What a micro-batch does to an accumulator.
enum class AccumulateAction { Keep, Set, Add };

// The action for the accumulator of one tree level. Level -1 means a single accumulator that adds
// the micro-batches one after the other.
WEFT_HOST_DEVICE inline AccumulateAction accumulate_action(int64_t level, int32_t micro) {
  if (level < 0) return micro == 0 ? AccumulateAction::Set : AccumulateAction::Add;
  const int32_t below = static_cast<int32_t>((int64_t{1} << level) - 1);
  if ((micro & below) != below) return AccumulateAction::Keep;
  return (micro >> level & 1) == 0 ? AccumulateAction::Set : AccumulateAction::Add;
}

}  // namespace weft

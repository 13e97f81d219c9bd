// Sums as balanced binary trees: of numbers that are all there, by halves; of micro-batches in the
// order in which they come, as a binary counter with a partial sum for each bit. Adding one carries
// through the bits that are ones.
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

// What happens to an accumulator in a micro-batch.
enum class AccumulateAction { Keep, Set, Add };

// Of the accumulator of a level of the tree, or, at level -1, of the only one, which adds up the
// micro-batches one after the other.
WEFT_HOST_DEVICE inline AccumulateAction accumulate_action(int64_t level, int32_t micro) {
  if (level < 0) return micro == 0 ? AccumulateAction::Set : AccumulateAction::Add;
  const int32_t below = static_cast<int32_t>((int64_t{1} << level) - 1);
  if ((micro & below) != below) return AccumulateAction::Keep;
  return (micro >> level & 1) == 0 ? AccumulateAction::Set : AccumulateAction::Add;
}

}  // namespace weft

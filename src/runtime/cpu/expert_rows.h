// The rows that are sent to experts, [sources, parts, slots, columns], as the offsets of a launch
// divide them.
#pragma once

#include <cstdint>

#include "plan/kernel.h"

namespace weft {

// Consecutive rows, counted among those of all sources and parts.
struct RowRange {
  int64_t first = 0, rows = 0;
};

class ExpertRows {
 public:
  ExpertRows(const Tensor& rows, const Tensor& offsets)
      : offsets_(offsets.as<int32_t>()),
        sources_(rows.shape.at(0)),
        parts_(rows.shape.at(1)),
        slots_(rows.shape.at(2)),
        experts_per_part_(offsets.shape.at(2) - 1) {}

  int64_t sources() const { return sources_; }
  int64_t slots() const { return slots_; }
  int64_t experts() const { return parts_ * experts_per_part_; }

  // Those of one source for an expert.
  RowRange of(int64_t source, int64_t expert) const {
    const int64_t block = source * parts_ + expert / experts_per_part_;
    return range(block, expert % experts_per_part_, 1);
  }

  // Those of a source and part, numbered together.
  RowRange in_block(int64_t block) const { return range(block, 0, experts_per_part_); }

 private:
  RowRange range(int64_t block, int64_t expert, int64_t count) const {
    const int32_t* begin = offsets_ + block * (experts_per_part_ + 1) + expert;
    return {block * slots_ + begin[0], begin[count] - begin[0]};
  }

  const int32_t* offsets_;
  int64_t sources_, parts_, slots_, experts_per_part_;
};

}  // namespace weft

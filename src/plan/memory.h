// Assigns arena offsets: persistent buffers first, then the transient buffers of each program, so
// that no two buffers live at the same step overlap. Offsets are multiples of kAlignment.
#pragma once

#include "plan/plan.h"

namespace weft {

inline constexpr int64_t kAlignment = 256;

constexpr int64_t align_up(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Sets every offset, arena_bytes and persistent_bytes.
void assign_offsets(Plan& plan);

}  // namespace weft

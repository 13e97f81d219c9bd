// Assigns arena offsets: persistent buffers one after the other, then, per program, transient
// buffers such that no two that are alive at the same step overlap. Offsets are multiples of
// kAlignment.
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

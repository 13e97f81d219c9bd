// How the rows of a norm are distributed over threads: kWarps warps share a row, each thread keeps
// kSlots vectors of it in registers. Rows of one warp need no barrier, and several share a block.
#pragma once

#include <type_traits>

#include "runtime/cuda/vector.h"

namespace weft::cuda {

// Rows that a block processes at a time.
template <int kWarps>
inline constexpr int kBlockRows = kWarps == 1 ? 4 : 1;

// The first element of slot s of this thread, within its row.
__device__ inline int slot_start(int s) {
  return static_cast<int>(threadIdx.x + s * blockDim.x) * kLanes;
}

// Calls run(warps, slots) with integral constants for rows of n elements.
template <class Run>
void with_row_shape(int64_t n, Run run) {
  const auto call = [&](auto warps, int64_t slots) {
    if (slots <= 1) return run(warps, std::integral_constant<int, 1>());
    if (slots == 2) return run(warps, std::integral_constant<int, 2>());
    if (slots == 3) return run(warps, std::integral_constant<int, 3>());
    run(warps, std::integral_constant<int, 4>());
  };
  const int64_t vectors = n / kVector;
  if (vectors <= 128) return call(std::integral_constant<int, 1>(), (vectors + 31) / 32);
  if (vectors <= 512) return call(std::integral_constant<int, 4>(), (vectors + 127) / 128);
  call(std::integral_constant<int, 8>(), (vectors + 255) / 256);
}

}  // namespace weft::cuda

// Packs bf16 in pairs: a lane holds two neighbours in depth, the lower one first. A pair has the
// size of a float, so packing along the depth is that of f32 at half the depth. Local to the file
// that includes it, like gemm_panels.h.
#pragma once

#include "runtime/cpu/gemm_zmm.h"

namespace weft {
namespace {

inline uint32_t pair(uint16_t low, uint16_t high) {
  return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
}

// Interleaves the lanes of two rows of the depth; the second row may be absent.
template <int kWidth>
void pack_two(const uint16_t* low, const uint16_t* high, int64_t stride, int64_t lanes,
              uint32_t* to) {
  if (stride == 1 && lanes == kWidth && high != nullptr) {
    for (int i = 0; i < kWidth; ++i) to[i] = pair(low[i], high[i]);
    return;
  }
  for (int64_t i = 0; i < lanes; ++i) {
    to[i] = pair(low[i * stride], high == nullptr ? uint16_t{0} : high[i * stride]);
  }
  for (int64_t i = lanes; i < kWidth; ++i) to[i] = 0;
}

// Panels of kWidth lanes whose depth is padded to a multiple of kStep pairs.
template <int kWidth, int kStep>
void pack_pairs(const PackSource& source, float* packed) {
  const auto* data = static_cast<const uint16_t*>(source.data);
  const int64_t pairs = (source.depth + 1) / 2;
  const int64_t filled = (pairs + kStep - 1) / kStep * kStep;
  const bool along = source.depth_stride == 1 && source.lane_stride % 2 == 0;
  for (int64_t lane = 0; lane < source.lanes; lane += kWidth) {
    const int64_t lanes = source.lanes - lane < kWidth ? source.lanes - lane : kWidth;
    const uint16_t* from = data + lane * source.lane_stride;
    float* panel = packed + lane * filled;
    int64_t p = 0;
    if (along) {
      p = source.depth / 2;
      PackSource full = source;
      full.lane_stride /= 2;
      full.depth = p;
      pack_panel<Zmm, kWidth, LoadF32<Zmm>>(reinterpret_cast<const float*>(from), full, lanes,
                                            panel);
    }
    for (; p < pairs; ++p) {
      const uint16_t* low = from + 2 * p * source.depth_stride;
      pack_two<kWidth>(low, 2 * p + 1 < source.depth ? low + source.depth_stride : nullptr,
                       source.lane_stride, lanes, reinterpret_cast<uint32_t*>(panel) + p * kWidth);
    }
    for (int64_t i = pairs * kWidth; i < filled * kWidth; ++i) panel[i] = 0;
  }
}

}  // namespace
}  // namespace weft

// Sixteen floats of AVX-512 as a vector type of gemm_panels.h, without multiplication: pairs of
// bf16 move like floats but multiply differently. Local to the file that includes it, like
// gemm_panels.h.
#pragma once

#include <immintrin.h>

#include "runtime/cpu/gemm_panels.h"

namespace weft {
namespace {

struct Zmm {
  using Reg = Floats16;
  static constexpr int kLanes = 16;
  static Reg zero() { return Reg{}; }
  static Reg spread(float value) { return _mm512_set1_ps(value); }
  static Reg load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Reg value) { _mm512_storeu_ps(to, value); }
  static Reg load_first(const float* from, int lanes) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << lanes) - 1), from);
  }
  static void store_first(float* to, Reg value, int lanes) {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << lanes) - 1), value);
  }
};

}  // namespace
}  // namespace weft

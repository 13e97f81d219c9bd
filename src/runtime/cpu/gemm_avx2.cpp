// Eight lanes and fused multiply-adds; compiled with -mavx2 -mfma -mf16c.
#include "runtime/cpu/gemm_panels.h"

#include <immintrin.h>

namespace weft {

namespace {

struct Avx2 : LaneByLane<Floats8> {
  using Reg = Floats8;
  static constexpr int kLanes = 8;
  static Reg zero() { return Reg{}; }
  static Reg spread(float value) { return _mm256_set1_ps(value); }
  static Reg load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Reg value) { _mm256_storeu_ps(to, value); }
  static Reg multiply_add(Reg a, Reg b, Reg sum) { return _mm256_fmadd_ps(a, b, sum); }
  static Reg from_bf16(const uint16_t* from) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static float scalar_from_f16(uint16_t value) { return _cvtsh_ss(value); }
  static Reg from_f16(const uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
};

}  // namespace

const GemmVariant& gemm_avx2() {
  static constexpr GemmVariant kVariant = float_variant<Avx2, 6>("avx2");
  return kVariant;
}

}  // namespace weft

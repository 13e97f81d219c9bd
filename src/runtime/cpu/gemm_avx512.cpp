// Sixteen lanes and fused multiply-adds; compiled with -mavx512f -mf16c.
#include "runtime/cpu/gemm_zmm.h"

namespace weft {

namespace {

struct Avx512 : Zmm {
  static Reg multiply_add(Reg a, Reg b, Reg sum) { return _mm512_fmadd_ps(a, b, sum); }
  static Reg from_bf16(const uint16_t* from) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static float scalar_from_f16(uint16_t value) { return _cvtsh_ss(value); }
  static Reg from_f16(const uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
};

}  // namespace

const GemmVariant& gemm_avx512() {
  static constexpr GemmVariant kVariant = float_variant<Avx512, 12>("avx512");
  return kVariant;
}

}  // namespace weft

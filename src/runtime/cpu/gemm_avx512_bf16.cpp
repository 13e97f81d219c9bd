// Matmuls of bf16 without conversion: one instruction multiplies a pair and adds both results to an
// f32 sum. Compiled with -mavx512f -mavx512bw -mavx512bf16.
#include "runtime/cpu/gemm_pairs.h"

namespace weft {

namespace {

struct PairMatmul : Zmm {
  static Reg multiply_add(Reg a, Reg b, Reg sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

void multiply_pairs(const PanelMatmul& matmul) {
  PanelMatmul halved = matmul;
  halved.depth = (matmul.depth + 1) / 2;
  multiply<PairMatmul, kPanelLeft, 12>(halved);
}

}  // namespace

const GemmVariant& gemm_avx512_bf16() {
  static constexpr GemmVariant kVariant{.name = "avx512_bf16",
                                        .panel_rows = 12,
                                        .panel_cols = 32,
                                        .terms = 2,
                                        .pack_rows = pack_pairs<12, 1>,
                                        .pack_cols = pack_pairs<32, 1>,
                                        .multiply = multiply_pairs};
  return kVariant;
}

}  // namespace weft

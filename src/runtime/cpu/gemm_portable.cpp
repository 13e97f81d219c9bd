// The variant for any machine: four lanes, a separate multiply and add for each term.
#include "base/half.h"
#include "runtime/cpu/gemm_panels.h"

namespace weft {

namespace {

struct Portable {
  using Reg = Floats4;
  static constexpr int kLanes = 4;
  static Reg zero() { return Reg{}; }
  static Reg spread(float value) { return Reg{value, value, value, value}; }
  static Reg load(const float* from) {
    Reg value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
  }
  static void store(float* to, Reg value) { __builtin_memcpy(to, &value, sizeof value); }
  static Reg load_first(const float* from, int lanes) {
    Reg value = zero();
    for (int i = 0; i < lanes; ++i) value[i] = from[i];
    return value;
  }
  static void store_first(float* to, Reg value, int lanes) {
    for (int i = 0; i < lanes; ++i) to[i] = value[i];
  }
  static Reg multiply_add(Reg a, Reg b, Reg sum) { return sum + a * b; }
  static Reg from_bf16(const uint16_t* from) {
    return Reg{f32_from_bf16(from[0]), f32_from_bf16(from[1]), f32_from_bf16(from[2]),
               f32_from_bf16(from[3])};
  }
  static float scalar_from_f16(uint16_t value) { return f32_from_f16(value); }
  static Reg from_f16(const uint16_t* from) {
    return Reg{f32_from_f16(from[0]), f32_from_f16(from[1]), f32_from_f16(from[2]),
               f32_from_f16(from[3])};
  }
};

}  // namespace

const GemmVariant& gemm_portable() {
  static constexpr GemmVariant kVariant{.name = "portable",
                                        .panel_rows = 6,
                                        .panel_cols = 8,
                                        .pack_rows = pack<Portable, 6>,
                                        .pack_cols = pack<Portable, 8>,
                                        .multiply = multiply<Portable, kPanelLeft, 6>,
                                        .multiply_tile = multiply<Portable, kTileLeft, 6>};
  return kVariant;
}

}  // namespace weft

// The variant for any machine: four lanes, a separate multiply and add for each term.
#include "base/half.h"
#include "runtime/cpu/gemm_panels.h"

namespace weft {

namespace {

struct Portable : LaneByLane<Floats4> {
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
  static constexpr GemmVariant kVariant = float_variant<Portable, 6>("portable");
  return kVariant;
}

}  // namespace weft

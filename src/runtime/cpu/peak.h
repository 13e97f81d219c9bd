// The most FLOP/s that one core of this machine can do in matmuls.
#pragma once

#include "graph/type.h"

namespace weft {

// Measured once per process, in a few milliseconds: multiply-adds of the instructions that matmuls
// of this type use, on operands in the nearest cache. No matmul of any size is faster.
double core_peak_flops(DType dtype);

}  // namespace weft

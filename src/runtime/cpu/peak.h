// Peak FLOP/s of one core of this machine in matmuls.
#pragma once

#include "graph/type.h"

namespace weft {

// Measured once per process, in a few milliseconds: multiply-adds with the instructions that
// matmuls of this type use, on operands in the L1 cache. No matmul of any size is faster.
double core_peak_flops(DType dtype);

}  // namespace weft

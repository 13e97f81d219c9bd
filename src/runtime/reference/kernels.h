// The reference backend's kernel table: slow, obvious loops, the oracle of every test.
#pragma once

#include <span>

#include "plan/kernel.h"

namespace weft {

// One row per op that is not a source; supports every floating-point dtype and any shape that the
// op infers.
std::span<const Kernel> reference_kernels();

}  // namespace weft

// Initial values of parameters as a pure function of (seed, parameter name, element): any part of
// any parameter can be generated anywhere, in any order, with the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "model/model.h"

namespace weft {

// Fills `values` with elements first, first + 1, ... of the parameter.
void init_param(const ParamInfo& param, uint64_t seed, int64_t first, std::span<float> values);

}  // namespace weft

// Single normal numbers, for inputs; the library draws them in blocks of four.
#pragma once

#include "base/philox.h"

namespace weft {

// The standard normal of one element.
inline double random_normal(PhiloxKey key, uint64_t step, uint64_t element) {
  return normal_block(key, step, element / 4).value[element % 4];
}

}  // namespace weft

// Which variant of the functions marked WEFT_CLONES (runtime/cpu/simd.h) this program runs.
#pragma once

namespace weft {

// Its name, by a function of as many variants that is chosen as they are.
const char* chosen_variant();

}  // namespace weft

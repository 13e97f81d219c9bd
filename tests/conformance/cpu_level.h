// Which variant of the functions marked WEFT_CLONES (runtime/cpu/simd.h) this program runs.
#pragma once

namespace weft {

// Its name, from a function with the same variants that is selected in the same way.
const char* chosen_variant();

}  // namespace weft

// Compiled in place of the CUDA backend when the build has no CUDA compiler.
#include "runtime/cuda/backend.h"

namespace weft {

const Backend* cuda_backend() {
  return nullptr;
}

}  // namespace weft

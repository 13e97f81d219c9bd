// The one entry to the CUDA backend; the rest of the runtime includes no other file of this folder.
#pragma once

#include "runtime/device.h"

namespace weft {

// The backend "cuda", or nullptr in a build without CUDA.
const Backend* cuda_backend();

}  // namespace weft

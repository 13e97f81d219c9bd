// The only entry to the CUDA backend; the rest of the runtime includes no other file of this
// folder.
#pragma once

#include "runtime/device.h"

namespace weft {

// The backend "cuda" of one process. A build without nvcc has its kernel table for planning, but no
// device.
const Backend& cuda_backend();

}  // namespace weft

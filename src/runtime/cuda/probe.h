// Whether the GPU can run the code of this build. Part of it is made for Hopper alone, without the
// intermediate code that a driver translates for later GPUs, so that each part is asked for.
#pragma once

namespace weft::cuda {

// Whether the driver has code of this kernel for the GPU in use.
bool has_code_of(const void* kernel);

bool has_code_for_this_gpu();

// The same for Hopper's kernels; true in a build without them.
bool has_hopper_code_for_this_gpu();

}  // namespace weft::cuda

// Whether the GPU can run the code of this build. Part of it is compiled for Hopper only, without
// PTX for later GPUs, so each part is checked.
#pragma once

namespace weft::cuda {

// Whether the driver has code for this kernel on the current GPU.
bool has_code_of(const void* kernel);

bool has_code_for_this_gpu();

// The same for Hopper's kernels; true in a build without them.
bool has_hopper_code_for_this_gpu();

}  // namespace weft::cuda

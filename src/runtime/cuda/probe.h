// Whether the GPU can run the code of this build.
#pragma once

namespace weft::cuda {

bool has_code_for_this_gpu();

}  // namespace weft::cuda

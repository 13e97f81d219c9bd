// A stream that has nothing to do for a moment, while the host queues what comes next.
#pragma once

#include <cuda_runtime_api.h>

namespace weft::cuda {

// Longer than the host takes to queue an op.
void launch_pause(cudaStream_t stream);

}  // namespace weft::cuda

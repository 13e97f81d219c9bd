// Keeps a stream idle for a moment, while the host queues what comes next.
#pragma once

#include <cuda_runtime_api.h>

namespace weft::cuda {

// Lasts longer than the host needs to queue an op.
void launch_delay(cudaStream_t stream);

}  // namespace weft::cuda

// The last step of every loss that is a sum over rows.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/kernel.h"

namespace weft::cuda {

// loss = the sum of the losses of the rows / count, in a fixed tree.
void launch_total_loss(const float* losses, int64_t rows, const float* count, const Tensor& loss,
                       cudaStream_t stream);

}  // namespace weft::cuda

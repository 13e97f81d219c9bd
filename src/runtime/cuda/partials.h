// Sums over rows in two stages, in an order that the shape alone fixes.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/kernel.h"

namespace weft::cuda {

// y = the sum of the rows of `partial` [rows, n] in order, rounded once to the type of y.
void launch_add_partials(const float* partial, int64_t rows, const Tensor& y, cudaStream_t stream);

}  // namespace weft::cuda

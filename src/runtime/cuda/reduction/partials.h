// Sums over rows in two stages, in an order that all kernels share: row r belongs to lane r mod
// row_lanes, a lane adds its rows in order, and add_partials adds the lanes. A sum that another
// kernel computes along the way therefore has the bits of sum_rows.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "plan/kernel.h"

namespace weft::cuda {

// Each sum adds `lanes` rows of `partial`, which holds [lanes, n] per sum, and rounds once. At most
// three sums, of equal length.
void launch_add_partials(const float* partial, int64_t lanes, const std::vector<Tensor>& sums,
                         cudaStream_t stream);

}  // namespace weft::cuda

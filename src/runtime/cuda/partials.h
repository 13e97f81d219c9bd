// Sums over rows in two stages, in an order that all kernels share: row r belongs to lane
// r mod row_lanes, a lane adds up its rows in order, and the lanes are added up by add_partials. So
// a sum that is made on the way has the bits of one made alone.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "plan/kernel.h"

namespace weft::cuda {

// Each sum = that of `lanes` rows of `partial`, [lanes, n] for one sum after the other, rounded
// once; three sums at most, of equal length.
void launch_add_partials(const float* partial, int64_t lanes, const std::vector<Tensor>& sums,
                         cudaStream_t stream);

}  // namespace weft::cuda

// Kernel rows of the collectives, for every backend whose memory the host can read. They stand
// beside the backend's own rows.
#pragma once

#include <span>

#include "plan/kernel.h"

namespace weft {

// Rows for all_gather, reduce_scatter, all_reduce and their starts.
std::span<const Kernel> comm_kernels();

}  // namespace weft

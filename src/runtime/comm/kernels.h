// Kernel rows of the collectives, used alongside a backend's own rows. The start of a split
// collective runs all of it: its stream runs concurrently with the computation.
#pragma once

#include <span>

#include "plan/kernel.h"

namespace weft {

// For backends whose memory can be read by the host and by the other ranks on it.
std::span<const Kernel> peer_kernels();

// For GPUs, whose ranks send data to each other. Planning needs no GPU, so every build has them.
std::span<const Kernel> gpu_comm_kernels();

}  // namespace weft

// Kernel rows of the collectives; they stand beside a backend's own rows. A start runs like the
// whole: its stream goes on beside the computation.
#pragma once

#include <span>

#include "plan/kernel.h"

namespace weft {

// For every backend whose memory the host, and the other ranks of the host, can read.
std::span<const Kernel> peer_kernels();

// For GPUs, whose ranks send each other what they need. Planning needs no GPU, so every build has
// them.
std::span<const Kernel> gpu_comm_kernels();

}  // namespace weft

// Runs a fused op by the kernels of its parts, one after the other: the row of a backend that has
// no faster one for the call. Faster rows must match it bit for bit.
#pragma once

#include <span>

#include "plan/kernel.h"

namespace weft {

// Whether the backend has a kernel for every part.
Decision parts_supported(std::span<const Kernel> kernels, const Call& call);

// Bytes of the temporaries plus the largest workspace of a part.
int64_t parts_workspace(std::span<const Kernel> kernels, const Call& call);

// Prepares the launches of the parts once.
std::shared_ptr<const void> prepare_parts(std::span<const Kernel> kernels, const Launch& launch);

// Launches the parts in order, from the prepared launches if there are any. `launch` must outlive
// their execution.
void launch_parts(std::span<const Kernel> kernels, const Launch& launch);

}  // namespace weft

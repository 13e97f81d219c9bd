// A joined op by the kernels of its parts, one after the other: the plain row that every backend
// has for it, and what its faster rows must agree with, bit for bit.
#pragma once

#include <span>

#include "plan/kernel.h"

namespace weft {

// Whether the backend has a kernel for every part.
Decision parts_supported(std::span<const Kernel> kernels, const Call& call);

// Temporaries, and the most that a part needs.
int64_t parts_workspace(std::span<const Kernel> kernels, const Call& call);

// The launches of the parts, for rows whose parts are prepared once.
std::shared_ptr<const void> prepare_parts(std::span<const Kernel> kernels, const Launch& launch);

// Launches the parts in order, as they were prepared if they were; `launch` needs to live until
// they have run.
void launch_parts(std::span<const Kernel> kernels, const Launch& launch);

}  // namespace weft

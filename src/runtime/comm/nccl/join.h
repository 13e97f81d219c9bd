// Ranks with a GPU each: their collectives run on the GPUs' streams through NCCL, everything
// between their host threads through the communicator of the processes.
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/device.h"

namespace weft {

// Throws DeviceError where NCCL, or a build with CUDA, is missing. make_groups joins the GPU that
// is current then.
std::unique_ptr<Communicator> join_gpus(std::unique_ptr<Communicator> hosts,
                                        const JoinOptions& options);

}  // namespace weft

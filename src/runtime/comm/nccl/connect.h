// Ranks with one GPU each: their collectives run on the GPU streams through NCCL. Communication
// between the host threads goes through the communicator of the processes.
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/device.h"

namespace weft {

// Throws DeviceError if NCCL is missing or the build has no CUDA. make_groups uses the GPU that is
// current when it is called.
std::unique_ptr<Communicator> connect_gpus(std::unique_ptr<Communicator> hosts,
                                           const ConnectOptions& options);

}  // namespace weft

// The device of the CUDA backend: one GPU of the host.
#pragma once

#include <memory>

#include "runtime/device.h"

namespace weft::cuda {

// The GPU with that index; throws DeviceError when there are fewer than needed, or this build
// cannot use it.
std::unique_ptr<Device> make_device(const DeviceOptions& options);

}  // namespace weft::cuda

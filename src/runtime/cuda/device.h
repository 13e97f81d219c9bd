// The device of the CUDA backend: GPU 0 of the process.
#pragma once

#include <memory>

#include "runtime/device.h"

namespace weft::cuda {

// GPU 0; throws DeviceError when there is no GPU that this build can use.
std::unique_ptr<Device> make_device(const DeviceOptions& options);

}  // namespace weft::cuda

// Roofline time of a call on a device: FLOPs at the matrix or vector rate, bytes at the memory
// bandwidth, whichever is longer, as far as the kernels of the op come near it, plus the launch.
#pragma once

#include <string>
#include <utility>

#include "config/device_spec.h"
#include "graph/op.h"

namespace weft {

double predicted_seconds(const Call& call, const DeviceSpec& device);

// The time that no kernel could beat at the rates of the device.
double bound_seconds(const Call& call, const DeviceSpec& device);

// Op and dtype under which a device spec lists what its kernels reach.
std::pair<std::string, std::string> kernel_key(const Call& call);

}  // namespace weft

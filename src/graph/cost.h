// Roofline time of a call on a device: FLOPs at the matrix or vector rate or bytes at the memory
// bandwidth, whichever takes longer, divided by the measured efficiency of the op's kernels, plus
// the launch latency.
#pragma once

#include <string>
#include <utility>

#include "config/device_spec.h"
#include "graph/op.h"

namespace weft {

double predicted_seconds(const Call& call, const DeviceSpec& device);

// Lower bound at the peak rates of the device.
double bound_seconds(const Call& call, const DeviceSpec& device);

// The op and dtype under which a device spec lists the measured efficiency of kernels.
std::pair<std::string, std::string> kernel_key(const Call& call);

}  // namespace weft

// Roofline time of a call on a device: FLOPs at the matrix or vector rate, bytes at the memory
// bandwidth, whichever is longer, plus the launch.
#pragma once

#include "config/device_spec.h"
#include "graph/op.h"

namespace weft {

double predicted_seconds(const Call& call, const DeviceSpec& device);

}  // namespace weft

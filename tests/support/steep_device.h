// A device for running passes on full models: bf16 matmuls at ten times the rate of f32, and memory
// slow enough that the cost of keeping a value differs from that of recomputing it.
#pragma once

#include "config/device_spec.h"

namespace weft {

inline DeviceSpec steep_device() {
  DeviceSpec device;
  device.memory_bandwidth = 1e10;
  device.matmul_flops_f32 = 1e11;
  device.matmul_flops_bf16 = 1e12;
  return device;
}

}  // namespace weft

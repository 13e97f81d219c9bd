// A device for the passes of whole models: bf16 products at ten times the rate of f32, and memory
// slow enough that what a value costs to keep and to compute again differ.
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

// Roofline estimate from an op's cost function and the device's rates.
#include "graph/cost.h"

#include <algorithm>

namespace weft {

namespace {

// Of the first floating operand, or f32.
DType dtype_of(const Call& call) {
  for (const TensorType& type : call.operands) {
    if (is_floating(type.dtype)) return type.dtype;
  }
  return DType::F32;
}

// What bounds a call, each alone.
struct Bounds {
  double compute = 0;
  double memory = 0;
  double longer() const { return std::max(compute, memory); }
};

Bounds bounds_of(const Call& call, const DeviceSpec& device) {
  const Cost cost = cost_of(call);
  double rate = device.vector_flops;
  if (call.op->traits.matmul) {
    rate = dtype_of(call) == DType::F32 ? device.matmul_flops_f32 : device.matmul_flops_bf16;
  }
  return {rate > 0 ? cost.flops / rate : 0, cost.bytes / device.memory_bandwidth};
}

}  // namespace

std::pair<std::string, std::string> kernel_key(const Call& call) {
  return {std::string(call.op->name()), std::string(dtype_name(dtype_of(call)))};
}

double bound_seconds(const Call& call, const DeviceSpec& device) {
  return bounds_of(call, device).longer();
}

double predicted_seconds(const Call& call, const DeviceSpec& device) {
  Bounds bounds = bounds_of(call, device);
  const std::string_view dtype = dtype_name(dtype_of(call));
  for (const KernelShare& kernel : device.kernels) {
    if (kernel.op == call.op->name() && kernel.dtype == dtype) {
      return bounds.longer() / kernel.share + device.launch_latency;
    }
  }
  if (call.op->traits.matmul) bounds.compute /= device.matmul_efficiency;
  return bounds.longer() + device.launch_latency;
}

}  // namespace weft

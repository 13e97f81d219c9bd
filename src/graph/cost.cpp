// Roofline estimate from an op's cost function and the device's rates.
#include "graph/cost.h"

#include <algorithm>

namespace weft {

double predicted_seconds(const Call& call, const DeviceSpec& device) {
  Cost cost = cost_of(call);
  bool low_precision = !call.operands.empty() && call.operands[0].dtype != DType::F32 &&
                       is_floating(call.operands[0].dtype);
  // Vector work is bound by memory on every device we know, so only matrix FLOPs count.
  double compute = 0;
  if (call.op->traits.matmul) {
    double rate = low_precision ? device.matmul_flops_bf16 : device.matmul_flops_f32;
    compute = cost.flops / (rate * device.matmul_efficiency);
  }
  return std::max(compute, cost.bytes / device.memory_bandwidth) + device.launch_latency;
}

}  // namespace weft

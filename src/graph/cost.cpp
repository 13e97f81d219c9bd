// Roofline estimate from an op's cost function and the device's rates.
#include "graph/cost.h"

#include <algorithm>

#include "graph/ops/ops.h"
#include "graph/parts.h"

namespace weft {

namespace {

// The dtype of the largest floating operand (the first one on a tie), or f32. A fused op uses that
// of its first part.
DType dtype_of(const Call& call) {
  if (!call.op->parts.empty()) return dtype_of(parts_of(call).front().call);
  const TensorType* largest = nullptr;
  for (const TensorType& type : call.operands) {
    if (!is_floating(type.dtype)) continue;
    if (largest == nullptr || type.elements() > largest->elements()) largest = &type;
  }
  return largest != nullptr ? largest->dtype : DType::F32;
}

// The lower bounds of a call, each on its own.
struct Bounds {
  double compute = 0;
  double memory = 0;
  double longer() const { return std::max(compute, memory); }
};

// Whether a bf16 or f16 matrix of the call has rows that do not start at multiples of 16 bytes.
bool has_unaligned_rows(const Call& call) {
  for (const auto* types : {&call.operands, &call.results}) {
    for (const TensorType& type : *types) {
      const int64_t bytes = dtype_bytes(type.dtype);
      if (bytes == 2 && type.shape.size() > 1 && type.shape.back() * bytes % 16 != 0) return true;
    }
  }
  return false;
}

Bounds bounds_of(const Call& call, const DeviceSpec& device) {
  const Cost cost = cost_of(call);
  double rate = device.vector_flops;
  if (call.op->traits.matmul) {
    rate = dtype_of(call) == DType::F32 ? device.matmul_flops_f32 : device.matmul_flops_bf16;
    if (has_unaligned_rows(call)) rate *= device.unaligned_share;
  }
  return {rate > 0 ? cost.flops / rate : 0, cost.bytes / device.memory_bandwidth};
}

const KernelShare* find_share(const OpDef& op, std::string_view dtype, const DeviceSpec& device) {
  for (const KernelShare& kernel : device.kernels) {
    if (kernel.op == op.name() && kernel.dtype == dtype) return &kernel;
  }
  return nullptr;
}

// The measured efficiency of the op's kernels, or nullptr. Steps are measured on one rank, so that
// of attention stands for attention to the keys of several ranks.
const KernelShare* share_of(const Call& call, const DeviceSpec& device) {
  const std::string_view dtype = dtype_name(dtype_of(call));
  const KernelShare* own = find_share(*call.op, dtype, device);
  if (own == nullptr && (call.op == &kContextAttention || call.op == &kContextAttentionMore)) {
    return find_share(kAttention, dtype, device);
  }
  if (own == nullptr && call.op == &kContextAttentionGrad) {
    return find_share(kAttentionGrad, dtype, device);
  }
  return own;
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
  const KernelShare* kernel = share_of(call, device);
  if (kernel == nullptr && !call.op->parts.empty()) {
    kernel = share_of(parts_of(call).front().call, device);
  }
  if (kernel != nullptr) return bounds.longer() / kernel->share + device.launch_latency;
  if (call.op->traits.matmul) bounds.compute /= device.matmul_efficiency;
  return bounds.longer() + device.launch_latency;
}

}  // namespace weft

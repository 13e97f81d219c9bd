// Fused ops as the kernels of their parts, where no faster row takes them.
#include "plan/part_kernels.h"
#include "runtime/cpu/kernels.h"

namespace weft {

namespace {

Decision supports(const Call& call) {
  return parts_supported(cpu_kernels(), call);
}

int64_t workspace(const Call& call) {
  return parts_workspace(cpu_kernels(), call);
}

void launch(const Launch& fused) {
  launch_parts(cpu_kernels(), fused);
}

std::shared_ptr<const void> prepare_parts(const Launch& fused) {
  return prepare_parts(cpu_kernels(), fused);
}

}  // namespace

std::span<const Kernel> cpu_fused_kernels() {
  static const Kernel rows[] = {
      {"layer_norm_grad_sums", "parts", supports, workspace, launch, false, prepare_parts},
  };
  return rows;
}

}  // namespace weft

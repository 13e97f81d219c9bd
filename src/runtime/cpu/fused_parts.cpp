// Fused ops: gelu_grad with the sum of its rows in one pass, and every other one as the kernels of
// its parts, where no faster row takes it.
#include "plan/part_kernels.h"
#include "runtime/cpu/activations.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/partials.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

void launch_gelu_grad_sum(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& x = launch.operands.at(1);
  const Tensor& dx = launch.results.at(0);
  const int64_t n = row_length(x.shape);
  const Partials partials(row_count(x.shape), n, launch.workspace);
  team(launch).run(partials.chunks(), [&](int64_t chunk, float* scratch) {
    float* sum = partials.start(chunk);
    for (int64_t row = partials.first_row(chunk); row < partials.end_row(chunk); ++row) {
      const float* dy_row = load(dy, row * n, n, scratch);
      const float* x_row = load(x, row * n, n, scratch + n);
      float* dx_row = place(dx, row * n, scratch + 2 * n);
      gelu_grad_block(dy_row, x_row, n, dx_row);
      store(dx, row * n, n, dx_row);
      round_to(dx.dtype, n, dx_row);
      add_to_row(dx_row, n, sum);
    }
  });
  partials.combine(team(launch), launch.results.at(1));
}

Decision supports_gelu_grad_sum(const Call& call) {
  return supports_rows(call, call.type(0), 3);
}

int64_t gelu_grad_sum_workspace(const Call& call) {
  return Partials::bytes(row_count(call.type(0).shape), row_length(call.type(0).shape));
}

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
      {"gelu_grad_sum", "rows", supports_gelu_grad_sum, gelu_grad_sum_workspace,
       launch_gelu_grad_sum},
      {"gelu_grad_sum", "parts", supports, workspace, launch, false, prepare_parts},
      {"add_layer_norm", "parts", supports, workspace, launch, false, prepare_parts},
      {"add_rms_norm", "parts", supports, workspace, launch, false, prepare_parts},
      {"layer_norm_grad_sums", "parts", supports, workspace, launch, false, prepare_parts},
      {"rms_norm_grad_add", "parts", supports, workspace, launch, false, prepare_parts},
  };
  return rows;
}

}  // namespace weft

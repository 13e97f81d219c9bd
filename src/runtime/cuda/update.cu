// accumulate, clip and adamw: the end of a step. Scalars of the step stay on the device, so the
// update needs no word from the host.
#include <cmath>

#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"

namespace weft {

namespace {

__global__ void accumulate(float* acc, Elements g, const int32_t* micro, int64_t n) {
  const int64_t i = global_thread();
  if (i >= n) return;
  acc[i] = *micro == 0 ? g.get(i) : acc[i] + g.get(i);
}

__global__ void clip(const float* norm, int32_t* updates, float max_norm, float* coefficient) {
  if (!isfinite(*norm)) {
    *coefficient = 0;
    return;
  }
  *updates += 1;
  *coefficient = max_norm > 0 ? fminf(1.0f, max_norm / (*norm + 1e-6f)) : 1.0f;
}

struct AdamwArgs {
  float* w = nullptr;
  Elements g;
  float* m = nullptr;
  float* v = nullptr;
  const float* lr = nullptr;
  const float* coefficient = nullptr;
  const int32_t* updates = nullptr;
  int64_t n = 0;
  double beta1 = 0;
  double beta2 = 0;
  float eps = 0;
  double decay = 0;
};

__global__ void adamw(AdamwArgs args) {
  __shared__ float step_size;
  __shared__ float root_correction;
  const float coefficient = *args.coefficient;
  if (coefficient == 0) return;
  if (threadIdx.x == 0) {
    const double lr = *args.lr;
    const double updates = *args.updates;
    step_size = static_cast<float>(lr / (1.0 - pow(args.beta1, updates)));
    root_correction = static_cast<float>(sqrt(1.0 - pow(args.beta2, updates)));
  }
  __syncthreads();
  const int64_t i = global_thread();
  if (i >= args.n) return;
  const float beta2 = static_cast<float>(args.beta2);
  const float shrink = static_cast<float>(1.0 - *args.lr * args.decay);
  const float g = args.g.get(i) * coefficient;
  const float m = args.m[i] + (g - args.m[i]) * static_cast<float>(1.0 - args.beta1);
  const float v = beta2 * args.v[i] + static_cast<float>(1.0 - args.beta2) * g * g;
  const float denominator = sqrtf(v) / root_correction + args.eps;
  args.w[i] = args.w[i] * shrink - step_size * (m / denominator);
  args.m[i] = m;
  args.v[i] = v;
}

}  // namespace

void launch_accumulate(const Launch& launch) {
  const Tensor& acc = launch.results.at(0);
  accumulate<<<blocks_for(acc.elements(), kThreads), kThreads, 0, stream_of(launch)>>>(
      acc.as<float>(), elements(launch.operands.at(1)), launch.operands.at(2).as<int32_t>(),
      acc.elements());
}

void launch_clip(const Launch& launch) {
  clip<<<1, 1, 0, stream_of(launch)>>>(
      launch.operands.at(0).as<float>(), launch.results.at(1).as<int32_t>(),
      static_cast<float>(launch.call->double_attr("max_norm")), launch.results.at(0).as<float>());
}

void launch_adamw(const Launch& launch) {
  const Call& call = *launch.call;
  const Tensor& w = launch.results.at(0);
  AdamwArgs args;
  args.w = w.as<float>();
  args.g = elements(launch.operands.at(1));
  args.m = launch.results.at(1).as<float>();
  args.v = launch.results.at(2).as<float>();
  args.lr = launch.operands.at(4).as<float>();
  args.coefficient = launch.operands.at(5).as<float>();
  args.updates = launch.operands.at(6).as<int32_t>();
  args.n = w.elements();
  args.beta1 = call.double_attr("beta1");
  args.beta2 = call.double_attr("beta2");
  args.eps = static_cast<float>(call.double_attr("eps"));
  args.decay = call.double_attr("decay");
  adamw<<<blocks_for(args.n, kThreads), kThreads, 0, stream_of(launch)>>>(args);
}

}  // namespace weft

// swiglu and its gradient: one thread per element of the result's half width.
#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"

namespace weft::cuda {

namespace {

__device__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

__global__ void swiglu(Elements x, Elements y, int64_t n, int64_t width) {
  const int64_t i = global_thread();
  if (i >= n) return;
  const int64_t gate_at = i / width * 2 * width + i % width;
  const float gate = x.get(gate_at);
  y.put(i, gate * sigmoid(gate) * x.get(gate_at + width));
}

__global__ void swiglu_grad(Elements dy, Elements x, Elements dx, int64_t n, int64_t width) {
  const int64_t i = global_thread();
  if (i >= n) return;
  const int64_t gate_at = i / width * 2 * width + i % width;
  const float gate = x.get(gate_at);
  const float up = x.get(gate_at + width);
  const float grad = dy.get(i);
  const float s = sigmoid(gate);
  dx.put(gate_at, grad * up * (s * (1.0f + gate * (1.0f - s))));
  dx.put(gate_at + width, grad * (gate * s));
}

}  // namespace

void launch_swiglu(const Launch& launch) {
  const Tensor& y = launch.results.at(0);
  swiglu<<<blocks_for(y.elements(), kThreads), kThreads, 0, stream_of(launch)>>>(
      elements(launch.operands.at(0)), elements(y), y.elements(), row_length(y));
}

void launch_swiglu_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  swiglu_grad<<<blocks_for(dy.elements(), kThreads), kThreads, 0, stream_of(launch)>>>(
      elements(dy), elements(launch.operands.at(1)), elements(launch.results.at(0)), dy.elements(),
      row_length(dy));
}

}  // namespace weft::cuda

// swiglu and its gradient: one thread per element, or per eight, of the result's half width. The
// gradient may alias x: a thread reads gate and up before it writes there.
#include "runtime/cuda/elementwise/activations.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

__global__ void swiglu(Elements x, Elements y, int64_t n, int64_t width) {
  const int64_t i = global_thread();
  if (i >= n) return;
  const int64_t gate_at = i / width * 2 * width + i % width;
  y.put(i, swiglu_value(x.dtype, x.get(gate_at), x.get(gate_at + width)));
}

__global__ void swiglu_grad(Elements dy, Elements x, Elements dx, int64_t n, int64_t width) {
  const int64_t i = global_thread();
  if (i >= n) return;
  const int64_t gate_at = i / width * 2 * width + i % width;
  const GateUp slopes = swiglu_slopes(x.dtype, dy.get(i), x.get(gate_at), x.get(gate_at + width));
  dx.put(gate_at, slopes.gate);
  dx.put(gate_at + width, slopes.up);
}

template <DType kType>
__global__ void vector_swiglu(const void* x, void* y, int64_t n, int64_t width) {
  const int64_t i = vector_start();
  if (i >= n) return;
  const int64_t gate_at = i / width * 2 * width + i % width;
  float gate[kLanes];
  float up[kLanes];
  Vector<kType>::load(x, gate_at, gate);
  Vector<kType>::load(x, gate_at + width, up);
  for (int e = 0; e < kLanes; ++e) gate[e] = swiglu_value(kType, gate[e], up[e]);
  Vector<kType>::store(y, i, gate);
}

template <DType kType>
__global__ void vector_swiglu_grad(const void* dy, const void* x, void* dx, int64_t n,
                                   int64_t width) {
  const int64_t i = vector_start();
  if (i >= n) return;
  const int64_t gate_at = i / width * 2 * width + i % width;
  float gate[kLanes];
  float up[kLanes];
  float grad[kLanes];
  Vector<kType>::load(x, gate_at, gate);
  Vector<kType>::load(x, gate_at + width, up);
  Vector<kType>::load(dy, i, grad);
  for (int e = 0; e < kLanes; ++e) {
    const GateUp slopes = swiglu_slopes(kType, grad[e], gate[e], up[e]);
    gate[e] = slopes.gate;
    up[e] = slopes.up;
  }
  Vector<kType>::store(dx, gate_at, gate);
  Vector<kType>::store(dx, gate_at + width, up);
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

void launch_vector_swiglu(const Launch& launch) {
  const Tensor& y = launch.results.at(0);
  with_dtype(y.dtype, [&](auto tag) {
    vector_swiglu<tag.kValue><<<vector_blocks(y.elements()), kThreads, 0, stream_of(launch)>>>(
        launch.operands.at(0).data, y.data, y.elements(), row_length(y));
  });
}

void launch_vector_swiglu_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  with_dtype(dy.dtype, [&](auto tag) {
    vector_swiglu_grad<tag.kValue>
        <<<vector_blocks(dy.elements()), kThreads, 0, stream_of(launch)>>>(
            dy.data, launch.operands.at(1).data, launch.results.at(0).data, dy.elements(),
            row_length(dy));
  });
}

}  // namespace weft::cuda

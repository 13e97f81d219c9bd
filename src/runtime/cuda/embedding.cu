// embedding and add_positions with their gradients. An id outside the table stops the kernel; the
// error shows at the next synchronize.
#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"

namespace weft::cuda {

namespace {

__global__ void embedding(const int32_t* ids, Elements w, Elements y, int64_t n, int64_t width,
                          int64_t rows) {
  const int64_t i = global_thread();
  if (i >= n) return;
  const int64_t id = ids[i / width];
  if (id < 0 || id >= rows) __trap();
  y.put(i, w.get(id * width + i % width));
}

// One block per row of the table and strip of columns: it walks the tokens in order, one chunk of
// ids at a time, and adds the rows of dy that belong to it.
__global__ void embedding_grad(const int32_t* ids, Elements dy, Elements dw, int64_t tokens,
                               int64_t width, int64_t strips) {
  __shared__ bool mine[kThreads];
  const int64_t id = blockIdx.x / strips;
  const int64_t col = blockIdx.x % strips * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int64_t first = 0; first < tokens; first += blockDim.x) {
    const int64_t token = first + threadIdx.x;
    const bool match = token < tokens && ids[token] == id;
    mine[threadIdx.x] = match;
    if (__syncthreads_or(match) && col < width) {
      for (int64_t t = 0; t < blockDim.x; ++t) {
        if (mine[t]) sum += dy.get((first + t) * width + col);
      }
    }
    __syncthreads();
  }
  if (col < width) dw.put(id * width + col, sum);
}

__global__ void add_positions(Elements x, Elements w, Elements y, int64_t n, int64_t per_sample) {
  const int64_t i = global_thread();
  if (i < n) y.put(i, x.get(i) + w.get(i % per_sample));
}

__global__ void add_positions_grad(Elements dy, Elements dw, int64_t n, int64_t samples,
                                   int64_t per_sample) {
  const int64_t i = global_thread();
  if (i >= n) return;
  float sum = 0;
  if (i < per_sample) {
    for (int64_t b = 0; b < samples; ++b) sum += dy.get(b * per_sample + i);
  }
  dw.put(i, sum);
}

}  // namespace

void launch_embedding(const Launch& launch) {
  const Tensor& w = launch.operands.at(1);
  const Tensor& y = launch.results.at(0);
  embedding<<<blocks_for(y.elements(), kThreads), kThreads, 0, stream_of(launch)>>>(
      launch.operands.at(0).as<int32_t>(), elements(w), elements(y), y.elements(), row_length(y),
      w.shape.at(0));
}

void launch_embedding_grad(const Launch& launch) {
  const Tensor& ids = launch.operands.at(0);
  const Tensor& dw = launch.results.at(0);
  const int64_t strips = blocks_for(row_length(dw), kThreads);
  embedding_grad<<<blocks_for(row_count(dw) * strips, 1), kThreads, 0, stream_of(launch)>>>(
      ids.as<int32_t>(), elements(launch.operands.at(1)), elements(dw), ids.elements(),
      row_length(dw), strips);
}

void launch_add_positions(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  add_positions<<<blocks_for(x.elements(), kThreads), kThreads, 0, stream_of(launch)>>>(
      elements(x), elements(launch.operands.at(1)), elements(launch.results.at(0)), x.elements(),
      x.shape.at(1) * x.shape.at(2));
}

void launch_add_positions_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& dw = launch.results.at(0);
  add_positions_grad<<<blocks_for(dw.elements(), kThreads), kThreads, 0, stream_of(launch)>>>(
      elements(dy), elements(dw), dw.elements(), dy.shape.at(0), dy.shape.at(1) * dy.shape.at(2));
}

}  // namespace weft::cuda

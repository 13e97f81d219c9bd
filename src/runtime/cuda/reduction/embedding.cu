// embedding and add_positions with their gradients. An id outside the table traps; the error
// appears at the next synchronize.
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/vector.h"

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
// ids at a time, and adds the matching rows of dy.
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

template <DType kType>
__global__ void vector_embedding(const int32_t* ids, const void* w, void* y, int64_t n,
                                 int64_t width, int64_t rows) {
  const int64_t i = vector_start();
  if (i >= n) return;
  const int64_t id = ids[i / width];
  if (id < 0 || id >= rows) __trap();
  float value[kLanes];
  Vector<kType>::load(w, id * width + i % width, value);
  Vector<kType>::store(y, i, value);
}

// A block owns this many rows of the table and a strip of columns, four per thread.
constexpr int kOwnedRows = 16;
constexpr int kOwnedCols = 4 * kThreads;

struct OrderedGradArgs {
  const int32_t* ids = nullptr;
  Elements dy, dw;
  int64_t tokens = 0;
  int64_t width = 0;
  int64_t rows = 0;
  bool add = false;  // to the contents of dw
};

// Finds the tokens of its rows among the next kThreads, in order; returns their count.
__device__ int find_tokens(const OrderedGradArgs& args, int64_t first, int64_t owned, int* found) {
  __shared__ int before[kThreads / 32];
  const int64_t token = first + threadIdx.x;
  const int64_t row = token < args.tokens ? args.ids[token] - owned : -1;
  const bool mine = row >= 0 && row < kOwnedRows;
  if (__syncthreads_or(mine) == 0) return 0;
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  const unsigned votes = __ballot_sync(0xffffffff, mine);
  if (lane == 0) before[warp] = __popc(votes);
  __syncthreads();
  int place = __popc(votes & ((1u << lane) - 1));
  int total = 0;
  for (unsigned other = 0; other < kThreads / 32; ++other) {
    if (other < warp) place += before[other];
    total += before[other];
  }
  if (mine) found[place] = static_cast<int>(threadIdx.x) * kOwnedRows + static_cast<int>(row);
  __syncthreads();
  return total;
}

// Each thread adds the columns it owns, token by token in order, in shared memory that no other
// thread accesses.
__global__ void ordered_embedding_grad(OrderedGradArgs args) {
  extern __shared__ float4 sums[];  // [kOwnedRows, kThreads]
  __shared__ int found[kThreads];
  const int64_t owned = static_cast<int64_t>(blockIdx.x) * kOwnedRows;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kOwnedCols + threadIdx.x * 4;
  const bool inside = col < args.width;
  for (int row = 0; row < kOwnedRows; ++row) {
    sums[row * kThreads + threadIdx.x] = make_float4(0, 0, 0, 0);
  }
  for (int64_t first = 0; first < args.tokens; first += kThreads) {
    const int count = find_tokens(args, first, owned, found);
    for (int f = 0; f < count && inside; ++f) {
      const int64_t at = (first + found[f] / kOwnedRows) * args.width + col;
      float4& sum = sums[found[f] % kOwnedRows * kThreads + threadIdx.x];
      sum.x += args.dy.get(at);
      sum.y += args.dy.get(at + 1);
      sum.z += args.dy.get(at + 2);
      sum.w += args.dy.get(at + 3);
    }
    if (count > 0) __syncthreads();
  }
  if (!inside) return;
  for (int row = 0; row < kOwnedRows && owned + row < args.rows; ++row) {
    const int64_t at = (owned + row) * args.width + col;
    float4 sum = sums[row * kThreads + threadIdx.x];
    if (args.add) {
      sum.x = args.dw.get(at) + sum.x;
      sum.y = args.dw.get(at + 1) + sum.y;
      sum.z = args.dw.get(at + 2) + sum.z;
      sum.w = args.dw.get(at + 3) + sum.w;
    }
    args.dw.put(at, sum.x);
    args.dw.put(at + 1, sum.y);
    args.dw.put(at + 2, sum.z);
    args.dw.put(at + 3, sum.w);
  }
}

void launch_ordered(const Tensor& ids, const Tensor& dy, const Tensor& dw, bool add,
                    const Launch& launch) {
  OrderedGradArgs args;
  args.ids = ids.as<int32_t>();
  args.dy = elements(dy);
  args.dw = elements(dw);
  args.tokens = ids.elements();
  args.width = row_length(dw);
  args.rows = row_count(dw);
  args.add = add;
  const int shared = kOwnedRows * kThreads * static_cast<int>(sizeof(float4));
  CUDA_CHECK(cudaFuncSetAttribute(ordered_embedding_grad,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  const dim3 grid(blocks_for(args.rows, kOwnedRows), blocks_for(args.width, kOwnedCols));
  ordered_embedding_grad<<<grid, kThreads, shared, stream_of(launch)>>>(args);
}

template <DType kType>
__global__ void vector_add_positions(const void* x, const void* w, void* y, int64_t n,
                                     int64_t per_sample) {
  const int64_t i = vector_start();
  if (i >= n) return;
  float value[kLanes];
  float position[kLanes];
  Vector<kType>::load(x, i, value);
  Vector<kType>::load(w, i % per_sample, position);
  for (int e = 0; e < kLanes; ++e) value[e] += position[e];
  Vector<kType>::store(y, i, value);
}

template <DType kType>
__global__ void vector_add_positions_grad(const void* dy, Elements dw, int64_t n, int64_t samples,
                                          int64_t per_sample) {
  const int64_t i = vector_start();
  if (i >= n) return;
  float sum[kLanes] = {};
  if (i < per_sample) {
#pragma unroll 8
    for (int64_t b = 0; b < samples; ++b) {
      float value[kLanes];
      Vector<kType>::load(dy, b * per_sample + i, value);
      for (int e = 0; e < kLanes; ++e) sum[e] += value[e];
    }
  }
  store_vector(dw, i, sum);
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

void launch_vector_embedding(const Launch& launch) {
  const Tensor& w = launch.operands.at(1);
  const Tensor& y = launch.results.at(0);
  with_dtype(w.dtype, [&](auto tag) {
    vector_embedding<tag.kValue><<<vector_blocks(y.elements()), kThreads, 0, stream_of(launch)>>>(
        launch.operands.at(0).as<int32_t>(), w.data, y.data, y.elements(), row_length(y),
        w.shape.at(0));
  });
}

void launch_ordered_embedding_grad(const Launch& launch) {
  launch_ordered(launch.operands.at(0), launch.operands.at(1), launch.results.at(0), false, launch);
}

void launch_ordered_embedding_grad_add(const Launch& launch) {
  launch_ordered(launch.operands.at(1), launch.operands.at(2), launch.results.at(0), true, launch);
}

void launch_vector_add_positions(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  with_dtype(x.dtype, [&](auto tag) {
    vector_add_positions<tag.kValue>
        <<<vector_blocks(x.elements()), kThreads, 0, stream_of(launch)>>>(
            x.data, launch.operands.at(1).data, launch.results.at(0).data, x.elements(),
            x.shape.at(1) * x.shape.at(2));
  });
}

void launch_vector_add_positions_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& dw = launch.results.at(0);
  with_dtype(dy.dtype, [&](auto tag) {
    vector_add_positions_grad<tag.kValue>
        <<<vector_blocks(dw.elements()), kThreads, 0, stream_of(launch)>>>(
            dy.data, elements(dw), dw.elements(), dy.shape.at(0), dy.shape.at(1) * dy.shape.at(2));
  });
}

}  // namespace weft::cuda

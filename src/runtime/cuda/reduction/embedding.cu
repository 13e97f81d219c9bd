// embedding and add_positions with their gradients. An id outside the table, unless that is a
// shard, traps; the error appears at the next synchronize.
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

// The rows of a table, which may be one of several shards.
struct TableRows {
  int64_t count = 0;
  const int32_t* coordinate = nullptr;  // the number of the shard; nullptr: a full table

  // The id of the first row.
  __device__ int64_t first() const { return coordinate == nullptr ? 0 : *coordinate * count; }
  // The row of an id; -1 if another shard has it.
  __device__ int64_t find(int64_t id) const {
    const int64_t row = id - first();
    if (row >= 0 && row < count) return row;
    if (coordinate == nullptr) __trap();
    return -1;
  }
};

// The rows of the table that operand 2, which is optional, makes a shard.
TableRows table_rows(const Launch& launch, int64_t count) {
  const bool shard = launch.operands.size() > 2;
  return {count, shard ? launch.operands[2].as<int32_t>() : nullptr};
}

__global__ void embedding(const int32_t* ids, Elements w, Elements y, int64_t n, int64_t width,
                          TableRows rows) {
  const int64_t i = global_thread();
  if (i >= n) return;
  const int64_t row = rows.find(ids[i / width]);
  y.put(i, row < 0 ? 0.0f : w.get(row * width + i % width));
}

// One block per row of the table and strip of columns: it walks the tokens in order, one chunk of
// ids at a time, and adds the matching rows of dy.
__global__ void embedding_grad(const int32_t* ids, Elements dy, Elements dw, int64_t tokens,
                               int64_t width, int64_t strips, TableRows rows) {
  __shared__ bool mine[kThreads];
  const int64_t row = blockIdx.x / strips;
  const int64_t id = rows.first() + row;
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
  if (col < width) dw.put(row * width + col, sum);
}

// The elements of one sample, which may be one of several shards of a sequence.
struct SampleShard {
  int64_t elements = 0;
  const int32_t* coordinate = nullptr;  // the number of the shard; nullptr: a full sequence

  __device__ int64_t first() const { return coordinate == nullptr ? 0 : *coordinate * elements; }
};

// The shard of a tensor [batch,time,width]; operand `coordinate` is optional.
SampleShard sample_shard(const Launch& launch, const Tensor& x, size_t coordinate) {
  const bool shard = launch.operands.size() > coordinate;
  return {x.shape.at(1) * x.shape.at(2),
          shard ? launch.operands.at(coordinate).as<int32_t>() : nullptr};
}

__global__ void add_positions(Elements x, Elements w, Elements y, int64_t n, SampleShard sample) {
  const int64_t i = global_thread();
  if (i < n) y.put(i, x.get(i) + w.get(sample.first() + i % sample.elements));
}

__global__ void add_positions_grad(Elements dy, Elements dw, int64_t n, int64_t samples,
                                   SampleShard sample) {
  const int64_t i = global_thread();
  if (i >= n) return;
  const int64_t at = i - sample.first();
  float sum = 0;
  if (at >= 0 && at < sample.elements) {
    for (int64_t b = 0; b < samples; ++b) sum += dy.get(b * sample.elements + at);
  }
  dw.put(i, sum);
}

template <DType kType>
__global__ void vector_embedding(const int32_t* ids, const void* w, void* y, int64_t n,
                                 int64_t width, TableRows rows) {
  const int64_t i = vector_start();
  if (i >= n) return;
  const int64_t row = rows.find(ids[i / width]);
  float value[kLanes] = {};
  if (row >= 0) Vector<kType>::load(w, row * width + i % width, value);
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
  TableRows rows;
  bool add = false;  // to the contents of dw
};

// Finds the tokens of its rows, whose ids begin with `first_id`, among the next kThreads, in order;
// returns their count.
__device__ int find_tokens(const OrderedGradArgs& args, int64_t first, int64_t first_id,
                           int* found) {
  __shared__ int before[kThreads / 32];
  const int64_t token = first + threadIdx.x;
  const int64_t row = token < args.tokens ? args.ids[token] - first_id : -1;
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
  const int64_t first_id = args.rows.first() + owned;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kOwnedCols + threadIdx.x * 4;
  const bool inside = col < args.width;
  for (int row = 0; row < kOwnedRows; ++row) {
    sums[row * kThreads + threadIdx.x] = make_float4(0, 0, 0, 0);
  }
  for (int64_t first = 0; first < args.tokens; first += kThreads) {
    const int count = find_tokens(args, first, first_id, found);
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
  for (int row = 0; row < kOwnedRows && owned + row < args.rows.count; ++row) {
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

// The operands from `first` on are the ids and dy. With `first` 1, operand 0 is the accumulator.
void launch_ordered(const Launch& launch, size_t first) {
  const Tensor& ids = launch.operands.at(first);
  const Tensor& dw = launch.results.at(0);
  OrderedGradArgs args;
  args.ids = ids.as<int32_t>();
  args.dy = elements(launch.operands.at(first + 1));
  args.dw = elements(dw);
  args.tokens = ids.elements();
  args.width = row_length(dw);
  args.add = first == 1;
  args.rows = args.add ? TableRows{row_count(dw)} : table_rows(launch, row_count(dw));
  const int shared = kOwnedRows * kThreads * static_cast<int>(sizeof(float4));
  CUDA_CHECK(cudaFuncSetAttribute(ordered_embedding_grad,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  const dim3 grid(blocks_for(args.rows.count, kOwnedRows), blocks_for(args.width, kOwnedCols));
  ordered_embedding_grad<<<grid, kThreads, shared, stream_of(launch)>>>(args);
}

template <DType kType>
__global__ void vector_add_positions(const void* x, const void* w, void* y, int64_t n,
                                     SampleShard sample) {
  const int64_t i = vector_start();
  if (i >= n) return;
  float value[kLanes];
  float position[kLanes];
  Vector<kType>::load(x, i, value);
  Vector<kType>::load(w, sample.first() + i % sample.elements, position);
  for (int e = 0; e < kLanes; ++e) value[e] += position[e];
  Vector<kType>::store(y, i, value);
}

template <DType kType>
__global__ void vector_add_positions_grad(const void* dy, Elements dw, int64_t n, int64_t samples,
                                          SampleShard sample) {
  const int64_t i = vector_start();
  if (i >= n) return;
  const int64_t at = i - sample.first();
  float sum[kLanes] = {};
  if (at >= 0 && at < sample.elements) {
#pragma unroll 8
    for (int64_t b = 0; b < samples; ++b) {
      float value[kLanes];
      Vector<kType>::load(dy, b * sample.elements + at, value);
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
      table_rows(launch, w.shape.at(0)));
}

void launch_embedding_grad(const Launch& launch) {
  const Tensor& ids = launch.operands.at(0);
  const Tensor& dw = launch.results.at(0);
  const int64_t strips = blocks_for(row_length(dw), kThreads);
  embedding_grad<<<blocks_for(row_count(dw) * strips, 1), kThreads, 0, stream_of(launch)>>>(
      ids.as<int32_t>(), elements(launch.operands.at(1)), elements(dw), ids.elements(),
      row_length(dw), strips, table_rows(launch, row_count(dw)));
}

void launch_add_bias(const Launch& launch) {
  const Tensor& y = launch.results.at(0);
  add_positions<<<blocks_for(y.elements(), kThreads), kThreads, 0, stream_of(launch)>>>(
      elements(launch.operands.at(0)), elements(launch.operands.at(1)), elements(y), y.elements(),
      SampleShard{row_length(y)});
}

void launch_add_positions(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  add_positions<<<blocks_for(x.elements(), kThreads), kThreads, 0, stream_of(launch)>>>(
      elements(x), elements(launch.operands.at(1)), elements(launch.results.at(0)), x.elements(),
      sample_shard(launch, x, 2));
}

void launch_add_positions_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& dw = launch.results.at(0);
  add_positions_grad<<<blocks_for(dw.elements(), kThreads), kThreads, 0, stream_of(launch)>>>(
      elements(dy), elements(dw), dw.elements(), dy.shape.at(0), sample_shard(launch, dy, 1));
}

void launch_vector_embedding(const Launch& launch) {
  const Tensor& w = launch.operands.at(1);
  const Tensor& y = launch.results.at(0);
  with_dtype(w.dtype, [&](auto tag) {
    vector_embedding<tag.kValue><<<vector_blocks(y.elements()), kThreads, 0, stream_of(launch)>>>(
        launch.operands.at(0).as<int32_t>(), w.data, y.data, y.elements(), row_length(y),
        table_rows(launch, w.shape.at(0)));
  });
}

void launch_ordered_embedding_grad(const Launch& launch) {
  launch_ordered(launch, 0);
}

void launch_ordered_embedding_grad_add(const Launch& launch) {
  launch_ordered(launch, 1);
}

void launch_vector_add_positions(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  with_dtype(x.dtype, [&](auto tag) {
    vector_add_positions<tag.kValue>
        <<<vector_blocks(x.elements()), kThreads, 0, stream_of(launch)>>>(
            x.data, launch.operands.at(1).data, launch.results.at(0).data, x.elements(),
            sample_shard(launch, x, 2));
  });
}

void launch_vector_add_positions_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& dw = launch.results.at(0);
  with_dtype(dy.dtype, [&](auto tag) {
    vector_add_positions_grad<tag.kValue>
        <<<vector_blocks(dw.elements()), kThreads, 0, stream_of(launch)>>>(
            dy.data, elements(dw), dw.elements(), dy.shape.at(0), sample_shard(launch, dy, 1));
  });
}

}  // namespace weft::cuda

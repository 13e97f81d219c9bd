// cross_entropy and its gradient, also on shards of the vocabulary. One block per row computes lse
// and the row's loss in one pass with a running maximum; one block then adds the rows in a fixed
// tree. A target outside the vocabulary traps.
#include <cmath>

#include "runtime/cuda/fast_math.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/reduction/loss.h"
#include "runtime/cuda/reduction/reduce.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

__global__ void total_loss(const float* losses, const float* valid, float* loss, int64_t rows) {
  float sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x) sum += losses[row];
  const float total = block_sum(sum);
  if (threadIdx.x == 0) *loss = total / *valid;
}

// Rows of logits, with the other inputs and the outputs.
struct LossArgs {
  const void* logits = nullptr;
  const int32_t* targets = nullptr;
  const float* valid = nullptr;
  float* lse = nullptr;
  float* losses = nullptr;  // one per row
  int64_t rows = 0;
  int64_t n = 0;
};

// The columns of a row of logits, which may be one of several shards.
struct Columns {
  int64_t n = 0;
  const int32_t* coordinate = nullptr;  // the number of the shard; nullptr: all columns
  int64_t classes = 0;                  // columns of all shards; those from here on are padding

  // The class of the first column.
  __device__ int64_t first() const { return coordinate == nullptr ? 0 : *coordinate * n; }
  // The number of columns before the padding.
  __device__ int64_t valid() const {
    return coordinate == nullptr ? n : max(int64_t{0}, min(classes - first(), n));
  }
};

Columns shard_columns(const Tensor& logits, const Tensor& coordinate, const Launch& launch) {
  return {row_length(logits), coordinate.as<int32_t>(), launch.call->int_attr("classes")};
}

struct LossGradArgs {
  const float* dloss = nullptr;
  Elements logits;
  const int32_t* targets = nullptr;
  const float* lse = nullptr;
  const float* valid = nullptr;
  Elements dlogits;
  int64_t elements = 0;
  Columns columns;
};

__global__ void loss_grad(LossGradArgs args) {
  const int64_t i = global_thread();
  if (i >= args.elements) return;
  const int64_t row = i / args.columns.n;
  const int64_t column = i % args.columns.n;
  const int64_t target = args.targets[row];
  float grad = 0;
  if (target >= 0 && column < args.columns.valid()) {
    const float p = expf(args.logits.get(i) - args.lse[row]);
    const bool is_target = args.columns.first() + column == target;
    grad = (p - (is_target ? 1.0f : 0.0f)) * (*args.dloss / *args.valid);
  }
  args.dlogits.put(i, grad);
}

constexpr int kLossThreads = 512;

// The sum of exp(x - maximum) over some elements.
struct ExpSum {
  float maximum = -INFINITY;
  float sum = 0;
};

__device__ ExpSum merge(const ExpSum& a, const ExpSum& b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  if (maximum == -INFINITY) return {maximum, a.sum + b.sum};  // 0, or a NaN that must propagate
  return {maximum, a.sum * __expf(a.maximum - maximum) + b.sum * __expf(b.maximum - maximum)};
}

__device__ ExpSum block_merge(ExpSum value) {
  __shared__ float maxima[kLossThreads / 32];
  __shared__ float sums[kLossThreads / 32];
  for (int step = 16; step > 0; step /= 2) {
    value = merge(value, {__shfl_xor_sync(0xffffffff, value.maximum, step),
                          __shfl_xor_sync(0xffffffff, value.sum, step)});
  }
  if (threadIdx.x % 32 == 0) {
    maxima[threadIdx.x / 32] = value.maximum;
    sums[threadIdx.x / 32] = value.sum;
  }
  __syncthreads();
  ExpSum total = {maxima[0], sums[0]};
  for (int warp = 1; warp < kLossThreads / 32; ++warp) {
    total = merge(total, {maxima[warp], sums[warp]});
  }
  return total;
}

// A row that may begin and end inside a vector: the elements before the first full vector, the
// number of full vectors, and the elements after them.
struct RowParts {
  int64_t first;  // index of the row's first element in its tensor
  int head, tail;
  int64_t body;

  __device__ RowParts(int64_t row, int64_t n) : RowParts(row, n, n) {}
  // The first `used` elements of a row of n.
  __device__ RowParts(int64_t row, int64_t n, int64_t used) : first(row * n) {
    head = static_cast<int>(min((kLanes - first % kLanes) % kLanes, used));
    body = (used - head) / kLanes * kLanes;
    tail = static_cast<int>(used - head - body);
  }
  // The element of the row outside of full vectors that this thread handles, or -1.
  __device__ int64_t edge() const {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < head) return thread;
    return thread < head + tail ? body + thread : -1;
  }
};

// The sum of exponentials of a row; every thread of the block gets it.
template <DType kType>
__device__ ExpSum row_exp_sum(const void* logits, const RowParts& row) {
  ExpSum own;
  const int64_t edge = row.edge();
  if (edge >= 0) {
    own.maximum = Elements{const_cast<void*>(logits), kType}.get(row.first + edge);
    own.sum = __expf(own.maximum - own.maximum);  // 1, or NaN
  }
  const int64_t first = row.first + row.head;
#pragma unroll 4
  for (int64_t i = threadIdx.x * kLanes; i < row.body; i += kLossThreads * kLanes) {
    float value[kLanes];
    Vector<kType>::load(logits, first + i, value);
    float largest = value[0];
    for (int e = 1; e < kLanes; ++e) largest = fmaxf(largest, value[e]);
    if (largest > own.maximum) {
      own.sum *= __expf(own.maximum - largest);
      own.maximum = largest;
    }
    for (int e = 0; e < kLanes; ++e) own.sum += __expf(value[e] - own.maximum);
  }
  return block_merge(own);
}

template <DType kType>
__device__ float target_logit(const void* logits, int64_t first, int64_t target, int64_t n) {
  if (target >= n) __trap();
  const Elements all{const_cast<void*>(logits), kType};
  return target < 0 ? 0.0f : all.get(first + target);
}

template <DType kType>
__global__ void online_row_loss(LossArgs args) {
  const int64_t row = blockIdx.x;
  const RowParts parts(row, args.n);
  const int64_t target = args.targets[row];
  const float logit =
      threadIdx.x == 0 ? target_logit<kType>(args.logits, parts.first, target, args.n) : 0.0f;
  const ExpSum total = row_exp_sum<kType>(args.logits, parts);
  const float lse = total.maximum + logf(total.sum);
  if (threadIdx.x == 0) {
    args.losses[row] = target < 0 ? 0.0f : lse - logit;
    args.lse[row] = lse;
  }
}

// Gradients of eight logits; logit `target`, if it is one of them, is the target's.
template <DType kType>
__device__ void logit_grads(float (&value)[kLanes], float lse, int target, float scale) {
#pragma unroll
  for (int e = 0; e < kLanes; ++e) {
    const float p = kType == DType::F32 ? __expf(value[e] - lse)
                                        : fast_exp2(fmaf(value[e], kLog2E, -lse * kLog2E));
    value[e] = p * scale;
  }
  if (target < 0 || target >= kLanes) return;
#pragma unroll
  for (int e = 0; e < kLanes; ++e) value[e] -= e == target ? scale : 0.0f;
}

template <DType kType>
__global__ void vector_loss_grad(LossGradArgs args) {
  const int64_t i = vector_start();
  if (i >= args.elements) return;
  const int64_t row = i / args.columns.n;
  const int64_t column = i % args.columns.n;
  const int64_t first = args.columns.first() + column;
  const int64_t target = args.targets[row];
  float value[kLanes] = {};
  if (target >= 0) {
    const float lse = args.lse[row];
    const float scale = *args.dloss / *args.valid;
    Vector<kType>::load(args.logits.data, i, value);
    logit_grads<kType>(value, lse, static_cast<int>(target - first), scale);
    if (args.columns.coordinate != nullptr) {
      const int64_t valid = args.columns.valid() - column;
      for (int e = 0; e < kLanes; ++e) value[e] = e < valid ? value[e] : 0.0f;
    }
  }
  Vector<kType>::store(args.dlogits.data, i, value);
}

struct StatsArgs {
  const void* logits = nullptr;
  const int32_t* targets = nullptr;
  float* stats = nullptr;
  Columns columns;
};

constexpr int kStats = 3;  // per row: largest logit, sum of exponentials, logit of the target

template <DType kType>
__global__ void online_row_stats(StatsArgs args) {
  const int64_t row = blockIdx.x;
  const int64_t valid = args.columns.valid();
  const int64_t target = args.targets[row];
  const int64_t column = target < 0 ? -1 : target - args.columns.first();
  if (target >= args.columns.classes) __trap();
  const RowParts parts(row, args.columns.n, valid);
  const ExpSum total = row_exp_sum<kType>(args.logits, parts);
  if (threadIdx.x != 0) return;
  const bool inside = column >= 0 && column < valid;
  float* out = args.stats + row * kStats;
  out[0] = total.maximum;
  out[1] = total.sum;
  out[2] = inside ? target_logit<kType>(args.logits, parts.first, column, valid) : 0.0f;
}

// One thread per row adds the shards in order.
__global__ void combine_stats(const float* stats, LossArgs args, int64_t shards) {
  const int64_t row = global_thread();
  if (row >= args.rows) return;
  const float* first = stats + row * kStats;
  const int64_t stride = args.rows * kStats;
  float maximum = -INFINITY;
  for (int64_t s = 0; s < shards; ++s) maximum = fmaxf(maximum, first[s * stride]);
  float sum = 0;
  float logit = 0;
  for (int64_t s = 0; s < shards; ++s) {
    const float* of = first + s * stride;
    sum += of[1] * expf(of[0] - maximum);
    logit += of[2];
  }
  const float lse = maximum + logf(sum);
  args.lse[row] = lse;
  args.losses[row] = args.targets[row] < 0 ? 0.0f : lse - logit;
}

LossGradArgs loss_grad_args(const Launch& launch) {
  const Tensor& logits = launch.operands.at(1);
  LossGradArgs args;
  args.dloss = launch.operands.at(0).as<float>();
  args.logits = elements(logits);
  args.targets = launch.operands.at(2).as<int32_t>();
  args.lse = launch.operands.at(3).as<float>();
  args.valid = launch.operands.at(4).as<float>();
  args.dlogits = elements(launch.results.at(0));
  args.elements = logits.elements();
  args.columns.n = row_length(logits);
  if (launch.operands.size() > 5) {
    args.columns = shard_columns(logits, launch.operands[5], launch);
  }
  return args;
}

LossArgs loss_args(const Launch& launch) {
  const Tensor& logits = launch.operands.at(0);
  LossArgs args;
  args.logits = logits.data;
  args.targets = launch.operands.at(1).as<int32_t>();
  args.valid = launch.operands.at(2).as<float>();
  args.lse = launch.results.at(1).as<float>();
  args.losses = static_cast<float*>(launch.workspace);
  args.rows = row_count(logits);
  args.n = row_length(logits);
  return args;
}

}  // namespace

void launch_total_loss(const float* losses, int64_t rows, const float* count, const Tensor& loss,
                       cudaStream_t stream) {
  total_loss<<<1, 1024, 0, stream>>>(losses, count, loss.as<float>(), rows);
}

void launch_online_cross_entropy(const Launch& launch) {
  const LossArgs args = loss_args(launch);
  with_dtype(launch.operands[0].dtype, [&](auto tag) {
    online_row_loss<tag.kValue>
        <<<blocks_for(args.rows, 1), kLossThreads, 0, stream_of(launch)>>>(args);
  });
  launch_total_loss(args.losses, args.rows, args.valid, launch.results.at(0), stream_of(launch));
}

void launch_online_cross_entropy_stats(const Launch& launch) {
  const Tensor& logits = launch.operands.at(0);
  StatsArgs args;
  args.logits = logits.data;
  args.targets = launch.operands.at(1).as<int32_t>();
  args.stats = launch.results.at(0).as<float>();
  args.columns = shard_columns(logits, launch.operands.at(2), launch);
  with_dtype(logits.dtype, [&](auto tag) {
    online_row_stats<tag.kValue>
        <<<blocks_for(row_count(logits), 1), kLossThreads, 0, stream_of(launch)>>>(args);
  });
}

void launch_cross_entropy_combine(const Launch& launch) {
  const Tensor& stats = launch.operands.at(0);
  LossArgs args;
  args.targets = launch.operands.at(1).as<int32_t>();
  args.valid = launch.operands.at(2).as<float>();
  args.lse = launch.results.at(1).as<float>();
  args.losses = static_cast<float*>(launch.workspace);
  args.rows = launch.operands[1].elements();
  combine_stats<<<blocks_for(args.rows, kThreads), kThreads, 0, stream_of(launch)>>>(
      stats.as<float>(), args, stats.shape.at(0));
  launch_total_loss(args.losses, args.rows, args.valid, launch.results.at(0), stream_of(launch));
}

void launch_cross_entropy_grad(const Launch& launch) {
  const LossGradArgs args = loss_grad_args(launch);
  loss_grad<<<blocks_for(args.elements, kThreads), kThreads, 0, stream_of(launch)>>>(args);
}

void launch_vector_cross_entropy_grad(const Launch& launch) {
  const LossGradArgs args = loss_grad_args(launch);
  with_dtype(args.logits.dtype, [&](auto tag) {
    vector_loss_grad<tag.kValue>
        <<<vector_blocks(args.elements), kThreads, 0, stream_of(launch)>>>(args);
  });
}

}  // namespace weft::cuda

// context_attention and its gradient: as attention, one block per (batch, head, query), or key in
// the second pass of the gradient; queries are a shard of the sequence, keys all of it or those of
// another shard.
#include <cmath>

#include "base/context_shard.h"
#include "runtime/cuda/attention/attention.h"
#include "runtime/cuda/reduction/reduce.h"

namespace weft::cuda {

namespace {

struct ContextArgs {
  Elements q, kv;  // [batch, queries, heads * dim], [batch, keys, kv_heads * (dim + value_dim)]
  int64_t queries = 0, keys = 0, heads = 0, kv_heads = 0, dim = 0, value_dim = 0;
  int64_t blocks = 1, block = 0;  // which block of keys kv is
  float scale = 0;
  int64_t chunk = 0;  // of positions that see each other; 0: all do
  DropRule dropout;
  const int32_t* rng = nullptr;  // state of dropout; null: no dropout
  const int32_t* positions = nullptr;
  const int32_t* coordinate = nullptr;
  Elements dy, y, dq, dkv;            // of a gradient
  float* lse = nullptr;               // [batch, heads, queries]
  float* delta = nullptr;             // the same
  const float* before = nullptr;      // y of the blocks before this one; null: there are none
  const float* lse_before = nullptr;  // their lse

  // The rows of the sequence that the queries and the keys are.
  __device__ ContextShard query_shard() const {
    return {queries, blocks > 1 ? blocks : keys / queries, *coordinate};
  }
  __device__ ContextShard key_shard() const { return keys_of(query_shard(), blocks, block); }
  // The row of query i in the sequence: the last key it sees.
  __device__ int64_t row(int64_t i) const { return query_shard().in_full(i); }
  __device__ int64_t first_key(int64_t b, int64_t i) const {
    return row(i) - keys_before(positions[b * queries + i], chunk);
  }
  __device__ int64_t group(int64_t h) const { return h / (heads / kv_heads); }
  __device__ int64_t q_at(int64_t b, int64_t h, int64_t i) const {
    return ((b * queries + i) * heads + h) * dim;
  }
  __device__ int64_t y_at(int64_t b, int64_t h, int64_t i) const {
    return ((b * queries + i) * heads + h) * value_dim;
  }
  __device__ int64_t k_at(int64_t b, int64_t g, int64_t j) const {
    return (b * keys + j) * kv_heads * (dim + value_dim) + g * dim;
  }
  __device__ int64_t v_at(int64_t b, int64_t g, int64_t j) const {
    return k_at(b, 0, j) + kv_heads * dim + g * value_dim;
  }
  __device__ float score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t q_first = q_at(b, h, i), k_first = k_at(b, group(h), j);
    float sum = 0;
    for (int64_t d = 0; d < dim; ++d) sum += q.get(q_first + d) * kv.get(k_first + d);
    return sum * scale;
  }
  __device__ float drop_pair(int64_t b, int64_t h, int64_t i, int64_t j, float value) const {
    if (rng == nullptr) return value;
    const DropStream stream = drop_stream(rng, dropout);
    const int64_t length = query_shard().full_size(), key_row = key_shard().in_full(j);
    const int64_t element = ((stream.shard_of(b) * heads + h) * length + row(i)) * length + key_row;
    return dropout.apply(value,
                         random_bits(stream.key, stream.step, static_cast<uint64_t>(element)));
  }
};

// The keys of one run that a query sees, as numbers in kv.
struct SeenKeys {
  int64_t begin, end;

  __device__ SeenKeys(const ContextArgs& args, const ContextRun& run, int64_t b, int64_t i)
      : begin(run.at + max(args.first_key(b, i) - run.row, static_cast<int64_t>(0))),
        end(run.at + min(args.row(i) + 1 - run.row, run.size)) {}
};

__global__ void context_attention(ContextArgs args) {
  __shared__ float weight[kAttentionThreads];
  __shared__ float sum[kMaxHeadDim];
  const AttentionRow at(args.heads, args.queries);
  const int64_t group = args.group(at.h), first = args.y_at(at.b, at.h, at.i);
  const bool adds = args.before != nullptr && args.lse_before[blockIdx.x] > -INFINITY;
  for (int64_t d = threadIdx.x; d < args.value_dim; d += blockDim.x) {
    sum[d] = adds ? args.before[first + d] : 0.0f;
  }
  float maximum = adds ? args.lse_before[blockIdx.x] : -INFINITY;
  float total = adds ? 1.0f : 0.0f;
  const ContextShard shard = args.key_shard();
  for (int64_t number = 0; number < shard.runs(); ++number) {
    const SeenKeys seen(args, shard.run(number), at.b, at.i);
    for (int64_t j0 = seen.begin; j0 < seen.end; j0 += blockDim.x) {
      const int64_t j = j0 + threadIdx.x;
      const bool visible = j < seen.end;
      const float score = visible ? args.score(at.b, at.h, at.i, j) : -INFINITY;
      const float new_maximum = fmaxf(maximum, block_max(score));
      const float shrink = expf(maximum - new_maximum);
      const float p = visible ? expf(score - new_maximum) : 0.0f;
      total = total * shrink + block_sum(p);
      maximum = new_maximum;
      weight[threadIdx.x] = visible ? args.drop_pair(at.b, at.h, at.i, j, p) : 0.0f;
      __syncthreads();
      const int64_t keys = min(static_cast<int64_t>(blockDim.x), seen.end - j0);
      for (int64_t d = threadIdx.x; d < args.value_dim; d += blockDim.x) {
        float part = 0;
        for (int64_t key = 0; key < keys; ++key) {
          part += weight[key] * args.kv.get(args.v_at(at.b, group, j0 + key) + d);
        }
        sum[d] = sum[d] * shrink + part;
      }
      __syncthreads();
    }
  }
  for (int64_t d = threadIdx.x; d < args.value_dim; d += blockDim.x) {
    args.y.put(first + d, total > 0 ? sum[d] / total : 0.0f);
  }
  if (threadIdx.x == 0) args.lse[blockIdx.x] = maximum + logf(total);
}

// The two factors of one pair: c p for dv, ds for dq and dk. No initialisers, because it lies in
// shared memory.
struct PairWeights {
  float kept;
  float ds;
};

__device__ PairWeights pair_weights(const ContextArgs& args, int64_t b, int64_t h, int64_t i,
                                    int64_t j, float delta) {
  const int64_t query = (b * args.heads + h) * args.queries + i;
  const float p = expf(args.score(b, h, i, j) - args.lse[query]);
  const int64_t dy_at = args.y_at(b, h, i), v_at = args.v_at(b, args.group(h), j);
  float dp = 0;
  for (int64_t d = 0; d < args.value_dim; ++d) dp += args.dy.get(dy_at + d) * args.kv.get(v_at + d);
  return {args.drop_pair(b, h, i, j, p), p * (args.drop_pair(b, h, i, j, dp) - delta)};
}

__global__ void context_attention_grad_q(ContextArgs args) {
  __shared__ float ds[kAttentionThreads];
  __shared__ float sum[kMaxHeadDim];
  const AttentionRow at(args.heads, args.queries);
  const int64_t first = args.q_at(at.b, at.h, at.i), y_first = args.y_at(at.b, at.h, at.i);
  float product = 0;
  for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) sum[d] = 0;
  for (int64_t d = threadIdx.x; d < args.value_dim; d += blockDim.x) {
    product += args.dy.get(y_first + d) * args.y.get(y_first + d);
  }
  const float delta = block_sum(product);
  if (threadIdx.x == 0) args.delta[blockIdx.x] = delta;
  const ContextShard shard = args.key_shard();
  for (int64_t number = 0; number < shard.runs(); ++number) {
    const SeenKeys seen(args, shard.run(number), at.b, at.i);
    for (int64_t j0 = seen.begin; j0 < seen.end; j0 += blockDim.x) {
      const int64_t j = j0 + threadIdx.x;
      ds[threadIdx.x] = j < seen.end ? pair_weights(args, at.b, at.h, at.i, j, delta).ds : 0.0f;
      __syncthreads();
      const int64_t keys = min(static_cast<int64_t>(blockDim.x), seen.end - j0);
      for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) {
        for (int64_t key = 0; key < keys; ++key) {
          sum[d] += ds[key] * args.kv.get(args.k_at(at.b, args.group(at.h), j0 + key) + d);
        }
      }
      __syncthreads();
    }
  }
  for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) {
    args.dq.put(first + d, sum[d] * args.scale);
  }
}

// A block walks all queries of the shard: which of them see its key follows from their rows.
__global__ void context_attention_grad_kv(ContextArgs args) {
  __shared__ PairWeights pair[kAttentionThreads];
  __shared__ float dk[kMaxHeadDim];
  __shared__ float dv[kMaxHeadDim];
  const AttentionRow key(args.kv_heads, args.keys);
  const int64_t key_row = args.key_shard().in_full(key.i);
  for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) dk[d] = 0;
  for (int64_t d = threadIdx.x; d < args.value_dim; d += blockDim.x) dv[d] = 0;
  const int64_t per_group = args.heads / args.kv_heads;
  for (int64_t h = key.h * per_group; h < (key.h + 1) * per_group; ++h) {
    for (int64_t i0 = 0; i0 < args.queries; i0 += blockDim.x) {
      const int64_t i = i0 + threadIdx.x;
      pair[threadIdx.x] = {0, 0};
      if (i < args.queries && key_row <= args.row(i) && args.first_key(key.b, i) <= key_row) {
        const float delta = args.delta[(key.b * args.heads + h) * args.queries + i];
        pair[threadIdx.x] = pair_weights(args, key.b, h, i, key.i, delta);
      }
      __syncthreads();
      const int64_t queries = min(static_cast<int64_t>(blockDim.x), args.queries - i0);
      for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) {
        for (int64_t query = 0; query < queries; ++query) {
          dk[d] += pair[query].ds * args.q.get(args.q_at(key.b, h, i0 + query) + d);
        }
      }
      for (int64_t d = threadIdx.x; d < args.value_dim; d += blockDim.x) {
        for (int64_t query = 0; query < queries; ++query) {
          dv[d] += pair[query].kept * args.dy.get(args.y_at(key.b, h, i0 + query) + d);
        }
      }
      __syncthreads();
    }
  }
  for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) {
    args.dkv.put(args.k_at(key.b, key.h, key.i) + d, dk[d] * args.scale);
  }
  for (int64_t d = threadIdx.x; d < args.value_dim; d += blockDim.x) {
    args.dkv.put(args.v_at(key.b, key.h, key.i) + d, dv[d]);
  }
}

// `first` is the operand number of q; kv follows.
ContextArgs context_args(const Launch& launch, size_t first, size_t positions) {
  const Call& call = *launch.call;
  const Tensor& q = launch.operands.at(first);
  const Tensor& kv = launch.operands.at(first + 1);
  ContextArgs args;
  args.q = elements(q);
  args.kv = elements(kv);
  args.queries = q.shape.at(1);
  args.keys = kv.shape.at(1);
  const AttentionHeads heads = attention_heads(call, q.shape.at(2), false);
  args.heads = heads.q;
  args.kv_heads = heads.kv;
  args.dim = heads.dim;
  args.value_dim = heads.value_dim;
  args.scale = static_cast<float>(attention_scale(call, heads.dim));
  args.chunk = call.int_attr("chunk");
  args.blocks = call.int_attr("blocks");
  args.block = call.int_attr("block");
  args.positions = launch.operands.at(positions).as<int32_t>();
  args.coordinate = launch.operands.at(positions + 1).as<int32_t>();
  const double rate = call.double_attr("dropout");
  if (rate > 0) {
    const Tensor& rng = launch.operands.at(positions + 2);
    args.rng = rng.as<int32_t>();
    args.dropout = drop_rule(rate, call.int_attr("stream"), rng.elements());
  }
  return args;
}

void launch_forward(const Launch& launch, ContextArgs args) {
  args.y = elements(launch.results.at(0));
  args.lse = launch.results.at(1).as<float>();
  const int64_t rows = launch.results.at(1).elements();
  context_attention<<<blocks_for(rows, 1), kAttentionThreads, 0, stream_of(launch)>>>(args);
}

}  // namespace

void launch_context_attention(const Launch& launch) {
  launch_forward(launch, context_args(launch, 0, 2));
}

void launch_context_attention_more(const Launch& launch) {
  ContextArgs args = context_args(launch, 0, 4);
  args.before = launch.operands.at(2).as<float>();
  args.lse_before = launch.operands.at(3).as<float>();
  launch_forward(launch, args);
}

void launch_context_attention_grad(const Launch& launch) {
  ContextArgs args = context_args(launch, 1, 5);
  args.dy = elements(launch.operands.at(0));
  args.y = elements(launch.operands.at(3));
  args.lse = launch.operands.at(4).as<float>();
  args.dq = elements(launch.results.at(0));
  args.dkv = elements(launch.results.at(1));
  args.delta = static_cast<float*>(launch.workspace);
  const int64_t rows = launch.operands.at(4).elements();
  context_attention_grad_q<<<blocks_for(rows, 1), kAttentionThreads, 0, stream_of(launch)>>>(args);
  const int64_t keys = launch.operands.at(2).shape.at(0) * args.kv_heads * args.keys;
  context_attention_grad_kv<<<blocks_for(keys, 1), kAttentionThreads, 0, stream_of(launch)>>>(args);
}

}  // namespace weft::cuda

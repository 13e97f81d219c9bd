// context_attention and its gradient: as attention, one block per (batch, head, query), or key in
// the second pass of the gradient; queries are a shard of the sequence, keys all of it.
#include <cmath>

#include "base/context_shard.h"
#include "runtime/cuda/attention/attention.h"
#include "runtime/cuda/reduction/reduce.h"

namespace weft::cuda {

namespace {

struct ContextArgs {
  Elements q, kv;  // [batch, queries, heads * dim], [batch, keys, 2 * kv_heads * dim]
  int64_t queries = 0, keys = 0, heads = 0, kv_heads = 0, dim = 0;
  float scale = 0;
  DropRule dropout;
  const int32_t* rng = nullptr;  // state of dropout; null: no dropout
  const int32_t* positions = nullptr;
  const int32_t* coordinate = nullptr;
  Elements dy, y, dq, dkv;  // of a gradient
  float* lse = nullptr;     // [batch, heads, queries]
  float* delta = nullptr;   // the same

  // The row of query i in the sequence: the last key it sees.
  __device__ int64_t row(int64_t i) const {
    return ContextShard{queries, keys / queries, *coordinate}.in_full(i);
  }
  __device__ int64_t first_key(int64_t b, int64_t i) const {
    return row(i) - positions[b * queries + i];
  }
  __device__ int64_t group(int64_t h) const { return h / (heads / kv_heads); }
  __device__ int64_t q_at(int64_t b, int64_t h, int64_t i) const {
    return ((b * queries + i) * heads + h) * dim;
  }
  __device__ int64_t k_at(int64_t b, int64_t g, int64_t j) const {
    return ((b * keys + j) * 2 * kv_heads + g) * dim;
  }
  __device__ int64_t v_at(int64_t b, int64_t g, int64_t j) const {
    return k_at(b, g, j) + kv_heads * dim;
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
    const int64_t element = ((stream.shard_of(b) * heads + h) * keys + row(i)) * keys + j;
    return dropout.apply(value,
                         random_bits(stream.key, stream.step, static_cast<uint64_t>(element)));
  }
};

__global__ void context_attention(ContextArgs args) {
  __shared__ float weight[kAttentionThreads];
  __shared__ float sum[kMaxHeadDim];
  const AttentionRow at(args.heads, args.queries);
  const int64_t group = args.group(at.h), last = args.row(at.i);
  for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) sum[d] = 0;
  float maximum = -INFINITY;
  float total = 0;
  for (int64_t j0 = args.first_key(at.b, at.i); j0 <= last; j0 += blockDim.x) {
    const int64_t j = j0 + threadIdx.x;
    const bool visible = j <= last;
    const float score = visible ? args.score(at.b, at.h, at.i, j) : -INFINITY;
    const float new_maximum = fmaxf(maximum, block_max(score));
    const float shrink = expf(maximum - new_maximum);
    const float p = visible ? expf(score - new_maximum) : 0.0f;
    total = total * shrink + block_sum(p);
    maximum = new_maximum;
    weight[threadIdx.x] = visible ? args.drop_pair(at.b, at.h, at.i, j, p) : 0.0f;
    __syncthreads();
    const int64_t keys = min(static_cast<int64_t>(blockDim.x), last + 1 - j0);
    for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) {
      float part = 0;
      for (int64_t key = 0; key < keys; ++key) {
        part += weight[key] * args.kv.get(args.v_at(at.b, group, j0 + key) + d);
      }
      sum[d] = sum[d] * shrink + part;
    }
    __syncthreads();
  }
  for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) {
    args.y.put(args.q_at(at.b, at.h, at.i) + d, sum[d] / total);
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
  const int64_t dy_at = args.q_at(b, h, i), v_at = args.v_at(b, args.group(h), j);
  float dp = 0;
  for (int64_t d = 0; d < args.dim; ++d) dp += args.dy.get(dy_at + d) * args.kv.get(v_at + d);
  return {args.drop_pair(b, h, i, j, p), p * (args.drop_pair(b, h, i, j, dp) - delta)};
}

__global__ void context_attention_grad_q(ContextArgs args) {
  __shared__ float ds[kAttentionThreads];
  __shared__ float sum[kMaxHeadDim];
  const AttentionRow at(args.heads, args.queries);
  const int64_t first = args.q_at(at.b, at.h, at.i), last = args.row(at.i);
  float product = 0;
  for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) {
    sum[d] = 0;
    product += args.dy.get(first + d) * args.y.get(first + d);
  }
  const float delta = block_sum(product);
  if (threadIdx.x == 0) args.delta[blockIdx.x] = delta;
  for (int64_t j0 = args.first_key(at.b, at.i); j0 <= last; j0 += blockDim.x) {
    const int64_t j = j0 + threadIdx.x;
    ds[threadIdx.x] = j <= last ? pair_weights(args, at.b, at.h, at.i, j, delta).ds : 0.0f;
    __syncthreads();
    const int64_t keys = min(static_cast<int64_t>(blockDim.x), last + 1 - j0);
    for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) {
      for (int64_t key = 0; key < keys; ++key) {
        sum[d] += ds[key] * args.kv.get(args.k_at(at.b, args.group(at.h), j0 + key) + d);
      }
    }
    __syncthreads();
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
  for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) dk[d] = dv[d] = 0;
  const int64_t per_group = args.heads / args.kv_heads;
  for (int64_t h = key.h * per_group; h < (key.h + 1) * per_group; ++h) {
    for (int64_t i0 = 0; i0 < args.queries; i0 += blockDim.x) {
      const int64_t i = i0 + threadIdx.x;
      pair[threadIdx.x] = {0, 0};
      if (i < args.queries && key.i <= args.row(i) && args.first_key(key.b, i) <= key.i) {
        const float delta = args.delta[(key.b * args.heads + h) * args.queries + i];
        pair[threadIdx.x] = pair_weights(args, key.b, h, i, key.i, delta);
      }
      __syncthreads();
      const int64_t queries = min(static_cast<int64_t>(blockDim.x), args.queries - i0);
      for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) {
        for (int64_t query = 0; query < queries; ++query) {
          const int64_t first = args.q_at(key.b, h, i0 + query);
          dk[d] += pair[query].ds * args.q.get(first + d);
          dv[d] += pair[query].kept * args.dy.get(first + d);
        }
      }
      __syncthreads();
    }
  }
  for (int64_t d = threadIdx.x; d < args.dim; d += blockDim.x) {
    args.dkv.put(args.k_at(key.b, key.h, key.i) + d, dk[d] * args.scale);
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
  args.heads = call.int_attr("heads");
  args.kv_heads = call.int_attr("kv_heads");
  args.dim = q.shape.at(2) / args.heads;
  args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.dim)));
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

}  // namespace

void launch_context_attention(const Launch& launch) {
  ContextArgs args = context_args(launch, 0, 2);
  args.y = elements(launch.results.at(0));
  args.lse = launch.results.at(1).as<float>();
  const int64_t rows = launch.results.at(1).elements();
  context_attention<<<blocks_for(rows, 1), kAttentionThreads, 0, stream_of(launch)>>>(args);
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

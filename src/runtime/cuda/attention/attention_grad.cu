// attention backward, deterministic in two passes. With p = exp(s - lse), c the dropout factor,
// delta_i = dy_i . y_i and ds_ij = p_ij (c_ij dy_i . v_j - delta_i): the first pass computes delta
// and dq_i = scale sum_j ds_ij k_j, one block per query. The second computes dk_j = scale sum_i
// ds_ij q_i and dv_j = sum_i c_ij p_ij dy_i, one block per key, which walks the heads of its group
// in order.
#include <cmath>

#include "runtime/cuda/attention/attention.h"
#include "runtime/cuda/reduction/reduce.h"

namespace weft::cuda {

namespace {

// The two factors of one pair: c p for dv, ds for dq and dk. No initialisers, because it lies in
// shared memory.
struct PairWeights {
  float kept;
  float ds;
};

__device__ PairWeights pair_weights(const AttentionGradArgs& args, int64_t b, int64_t h, int64_t i,
                                    int64_t j, float delta) {
  const AttentionShape& shape = args.shape;
  const float p = expf(shape.score(b, h, i, j) - args.lse[args.row(b, h, i)]);
  const int64_t dy_at = shape.y_at(b, h, i);
  const int64_t v_at = shape.v_at(b, shape.group(h), j);
  float dp = 0;
  for (int64_t d = 0; d < shape.value_dim; ++d) {
    dp += args.dy.get(dy_at + d) * shape.qkv.get(v_at + d);
  }
  return {shape.drop_pair(b, h, i, j, p), p * (shape.drop_pair(b, h, i, j, dp) - delta)};
}

__global__ void attention_grad_q(AttentionGradArgs args) {
  __shared__ float ds[kAttentionThreads];
  __shared__ float sum[kMaxHeadDim];
  const AttentionShape& shape = args.shape;
  const AttentionRow row(shape.heads, shape.length);
  const int64_t y_at = shape.y_at(row.b, row.h, row.i);
  float product = 0;
  for (int64_t d = threadIdx.x; d < shape.dim; d += blockDim.x) sum[d] = 0;
  for (int64_t d = threadIdx.x; d < shape.value_dim; d += blockDim.x) {
    product += args.dy.get(y_at + d) * args.y.get(y_at + d);
  }
  const float delta = block_sum(product);
  if (threadIdx.x == 0) args.delta[blockIdx.x] = delta;
  for (int64_t j0 = shape.first_key(row.b, row.i); j0 <= row.i; j0 += blockDim.x) {
    const int64_t j = j0 + threadIdx.x;
    ds[threadIdx.x] = j <= row.i ? pair_weights(args, row.b, row.h, row.i, j, delta).ds : 0.0f;
    __syncthreads();
    const int64_t keys = min(static_cast<int64_t>(blockDim.x), row.i + 1 - j0);
    for (int64_t d = threadIdx.x; d < shape.dim; d += blockDim.x) {
      for (int64_t key = 0; key < keys; ++key) {
        sum[d] += ds[key] * shape.qkv.get(shape.k_at(row.b, shape.group(row.h), j0 + key) + d);
      }
    }
    __syncthreads();
  }
  for (int64_t d = threadIdx.x; d < shape.dim; d += blockDim.x) {
    args.dqkv.put(shape.q_at(row.b, row.h, row.i) + d, sum[d] * shape.scale);
  }
}

__global__ void attention_grad_kv(AttentionGradArgs args) {
  __shared__ PairWeights pair[kAttentionThreads];
  __shared__ float dk[kMaxHeadDim];
  __shared__ float dv[kMaxHeadDim];
  const AttentionShape& shape = args.shape;
  const AttentionRow key(shape.kv_heads, shape.length);
  for (int64_t d = threadIdx.x; d < shape.dim; d += blockDim.x) dk[d] = 0;
  for (int64_t d = threadIdx.x; d < shape.value_dim; d += blockDim.x) dv[d] = 0;
  const int64_t per_group = shape.heads / shape.kv_heads;
  for (int64_t h = key.h * per_group; h < (key.h + 1) * per_group; ++h) {
    for (int64_t i0 = key.i; i0 < shape.length; i0 += blockDim.x) {
      if (shape.first_key(key.b, i0) > key.i) break;  // the document or chunk has ended
      const int64_t i = i0 + threadIdx.x;
      pair[threadIdx.x] = {0, 0};
      if (i < shape.length && shape.first_key(key.b, i) <= key.i) {
        pair[threadIdx.x] =
            pair_weights(args, key.b, h, i, key.i, args.delta[args.row(key.b, h, i)]);
      }
      __syncthreads();
      const int64_t queries = min(static_cast<int64_t>(blockDim.x), shape.length - i0);
      for (int64_t d = threadIdx.x; d < shape.dim; d += blockDim.x) {
        for (int64_t query = 0; query < queries; ++query) {
          dk[d] += pair[query].ds * shape.qkv.get(shape.q_at(key.b, h, i0 + query) + d);
        }
      }
      for (int64_t d = threadIdx.x; d < shape.value_dim; d += blockDim.x) {
        for (int64_t query = 0; query < queries; ++query) {
          dv[d] += pair[query].kept * args.dy.get(shape.y_at(key.b, h, i0 + query) + d);
        }
      }
      __syncthreads();
    }
  }
  for (int64_t d = threadIdx.x; d < shape.dim; d += blockDim.x) {
    args.dqkv.put(shape.k_at(key.b, key.h, key.i) + d, dk[d] * shape.scale);
  }
  for (int64_t d = threadIdx.x; d < shape.value_dim; d += blockDim.x) {
    args.dqkv.put(shape.v_at(key.b, key.h, key.i) + d, dv[d]);
  }
}

void backward(const Launch& launch, const AttentionShape& shape) {
  const AttentionGradArgs args = attention_grad_args(launch, shape);
  const int64_t rows = launch.operands.at(1).shape.at(0) * shape.length;
  attention_grad_q<<<blocks_for(rows * shape.heads, 1), kAttentionThreads, 0, stream_of(launch)>>>(
      args);
  attention_grad_kv<<<blocks_for(rows * shape.kv_heads, 1), kAttentionThreads, 0,
                      stream_of(launch)>>>(args);
}

}  // namespace

void launch_attention_grad(const Launch& launch) {
  backward(launch, attention_shape(launch, kAttentionGradPlaces));
}

void launch_document_attention_grad(const Launch& launch) {
  backward(launch, attention_shape(launch, kDocumentGradPlaces));
}

}  // namespace weft::cuda

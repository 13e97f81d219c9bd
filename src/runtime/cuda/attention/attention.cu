// attention forward: one block per (batch, head, query). The block walks the keys in chunks of one
// key per thread and keeps a running maximum, so its memory does not depend on the length.
#include <cmath>

#include "runtime/cuda/attention/attention.h"
#include "runtime/cuda/reduction/reduce.h"

namespace weft::cuda {

namespace {

__global__ void attention(AttentionShape shape, Elements y, float* lse) {
  __shared__ float weight[kAttentionThreads];
  __shared__ float sum[kMaxHeadDim];
  const AttentionRow row(shape.heads, shape.length);
  const int64_t group = shape.group(row.h);
  for (int64_t d = threadIdx.x; d < shape.value_dim; d += blockDim.x) sum[d] = 0;
  float maximum = -INFINITY;
  float total = 0;
  for (int64_t j0 = shape.first_key(row.b, row.i); j0 <= row.i; j0 += blockDim.x) {
    const int64_t j = j0 + threadIdx.x;
    const bool visible = j <= row.i;
    const float score = visible ? shape.score(row.b, row.h, row.i, j) : -INFINITY;
    const float new_maximum = fmaxf(maximum, block_max(score));
    const float shrink = expf(maximum - new_maximum);
    const float p = visible ? expf(score - new_maximum) : 0.0f;
    total = total * shrink + block_sum(p);
    maximum = new_maximum;
    weight[threadIdx.x] = visible ? shape.drop_pair(row.b, row.h, row.i, j, p) : 0.0f;
    __syncthreads();
    const int64_t keys = min(static_cast<int64_t>(blockDim.x), row.i + 1 - j0);
    for (int64_t d = threadIdx.x; d < shape.value_dim; d += blockDim.x) {
      float part = 0;
      for (int64_t key = 0; key < keys; ++key) {
        part += weight[key] * shape.qkv.get(shape.v_at(row.b, group, j0 + key) + d);
      }
      sum[d] = sum[d] * shrink + part;
    }
    __syncthreads();
  }
  for (int64_t d = threadIdx.x; d < shape.value_dim; d += blockDim.x) {
    y.put(shape.y_at(row.b, row.h, row.i) + d, sum[d] / total);
  }
  if (threadIdx.x == 0) lse[blockIdx.x] = maximum + logf(total);
}

void forward(const Launch& launch, const AttentionShape& shape) {
  const int64_t rows = launch.results.at(1).elements();
  attention<<<blocks_for(rows, 1), kAttentionThreads, 0, stream_of(launch)>>>(
      shape, elements(launch.results.at(0)), launch.results.at(1).as<float>());
}

}  // namespace

void launch_attention(const Launch& launch) {
  forward(launch, attention_shape(launch, kAttentionPlaces));
}

void launch_document_attention(const Launch& launch) {
  forward(launch, attention_shape(launch, kDocumentPlaces));
}

}  // namespace weft::cuda

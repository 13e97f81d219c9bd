// Shared by the attention kernels: the layout of q, k and v in the packed tensor, and the score and
// dropout of one pair of positions.
#pragma once

#include "plan/attention_heads.h"
#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/random.h"

namespace weft::cuda {

inline constexpr int kAttentionThreads = 128;

struct AttentionShape {
  Elements qkv;  // [batch, length, heads * dim | kv_heads * dim | kv_heads * value_dim]
  int64_t length = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t dim = 0;
  int64_t value_dim = 0;
  float scale = 0;
  int64_t chunk = 0;  // of positions that see each other; 0: all do
  DropRule dropout;
  const int32_t* rng = nullptr;        // state of dropout; null: no dropout
  const int32_t* positions = nullptr;  // within documents; null: each sample is one document

  __device__ int64_t row(int64_t b, int64_t i) const {
    return (b * length + i) * ((heads + kv_heads) * dim + kv_heads * value_dim);
  }
  // First element of q of a head, or of k or v of a key-value head, at position i.
  __device__ int64_t q_at(int64_t b, int64_t h, int64_t i) const { return row(b, i) + h * dim; }
  __device__ int64_t k_at(int64_t b, int64_t g, int64_t i) const {
    return row(b, i) + (heads + g) * dim;
  }
  __device__ int64_t v_at(int64_t b, int64_t g, int64_t i) const {
    return row(b, i) + (heads + kv_heads) * dim + g * value_dim;
  }
  // First element of a head at position i in y or dy.
  __device__ int64_t y_at(int64_t b, int64_t h, int64_t i) const {
    return ((b * length + i) * heads + h) * value_dim;
  }
  // The first key that query i sees; does not decrease with i.
  __device__ int64_t first_key(int64_t b, int64_t i) const {
    return i - keys_before(positions == nullptr ? i : positions[b * length + i], chunk);
  }
  __device__ int64_t group(int64_t h) const { return h / (heads / kv_heads); }

  __device__ float score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t q = q_at(b, h, i);
    const int64_t k = k_at(b, group(h), j);
    float sum = 0;
    for (int64_t d = 0; d < dim; ++d) sum += qkv.get(q + d) * qkv.get(k + d);
    return sum * scale;
  }
  // Applies dropout to a value of query i and key j.
  __device__ float drop_pair(int64_t b, int64_t h, int64_t i, int64_t j, float value) const {
    if (rng == nullptr) return value;
    const DropStream stream = drop_stream(rng, dropout);
    const int64_t row = (stream.shard_of(b) * heads + h) * length + i;
    const auto element = static_cast<uint64_t>(row * length + j);
    return dropout.apply(value, random_bits(stream.key, stream.step, element));
  }
};

// Operand indices; positions = 0 means there are none.
struct AttentionPlaces {
  size_t qkv = 0, rng = 0, positions = 0;
};
inline constexpr AttentionPlaces kAttentionPlaces{.qkv = 0, .rng = 1};
inline constexpr AttentionPlaces kDocumentPlaces{.qkv = 0, .rng = 2, .positions = 1};
inline constexpr AttentionPlaces kAttentionGradPlaces{.qkv = 1, .rng = 4};
inline constexpr AttentionPlaces kDocumentGradPlaces{.qkv = 1, .rng = 5, .positions = 4};

// Reads the shapes and attributes of an attention or its gradient.
inline AttentionShape attention_shape(const Launch& launch, const AttentionPlaces& places) {
  const Call& call = *launch.call;
  const Tensor& qkv = launch.operands.at(places.qkv);
  AttentionShape shape;
  shape.qkv = elements(qkv);
  shape.length = qkv.shape.at(1);
  const AttentionHeads heads = attention_heads(call, qkv.shape.at(2), true);
  shape.heads = heads.q;
  shape.kv_heads = heads.kv;
  shape.dim = heads.dim;
  shape.value_dim = heads.value_dim;
  shape.scale = static_cast<float>(attention_scale(call, heads.dim));
  shape.chunk = call.int_attr("chunk");
  const double rate = call.double_attr("dropout");
  if (rate > 0) {
    const Tensor& rng = launch.operands.at(places.rng);
    shape.rng = rng.as<int32_t>();
    shape.dropout = drop_rule(rate, call.int_attr("stream"), rng.elements());
  }
  if (places.positions > 0) shape.positions = launch.operands.at(places.positions).as<int32_t>();
  return shape;
}

struct AttentionGradArgs {
  AttentionShape shape;
  Elements dy, y, dqkv;
  const float* lse = nullptr;  // [batch, heads, length]
  float* delta = nullptr;      // [batch, heads, length]

  __device__ int64_t row(int64_t b, int64_t h, int64_t i) const {
    return (b * shape.heads + h) * shape.length + i;
  }
};

// Operands 0, 2 and 3, result 0 and the scratch memory of a gradient.
inline AttentionGradArgs attention_grad_args(const Launch& launch, const AttentionShape& shape) {
  AttentionGradArgs args;
  args.shape = shape;
  args.dy = elements(launch.operands.at(0));
  args.y = elements(launch.operands.at(2));
  args.dqkv = elements(launch.results.at(0));
  args.lse = launch.operands.at(3).as<float>();
  args.delta = static_cast<float*>(launch.workspace);
  return args;
}

// Block (batch, head, position), position fastest.
struct AttentionRow {
  int64_t b, h, i;
  __device__ AttentionRow(int64_t heads, int64_t length)
      : b(blockIdx.x / length / heads), h(blockIdx.x / length % heads), i(blockIdx.x % length) {}
};

}  // namespace weft::cuda

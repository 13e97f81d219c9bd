#include "runtime/cpu/attention_blocks.h"

#include <cmath>

namespace weft::attention {

Problem problem_of(const Launch& launch, const Places& places) {
  const Call& call = *launch.call;
  const Tensor& qkv = launch.operands.at(places.qkv);
  const Shape& shape = qkv.shape;
  Problem p;
  p.batch = shape[0];
  p.time = shape[1];
  p.heads = call.int_attr("heads");
  p.kv_heads = call.int_attr("kv_heads");
  p.dim = shape[2] / (p.heads + 2 * p.kv_heads);
  p.tensors = &gemm_variant(qkv.dtype, qkv.dtype);
  p.computed = &gemm_variant(DType::F32, qkv.dtype);
  p.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.dim)));
  const double rate = call.double_attr("dropout");
  p.drop = rate > 0;
  if (p.drop) {
    p.dropout = make_dropout(launch.operands.at(places.rng), call.int_attr("stream"), rate);
  }
  if (places.positions > 0) p.positions = launch.operands.at(places.positions).as<int32_t>();
  return p;
}

void begin_keys(const Problem& p, Block& block, Scratch& scratch) {
  if (p.positions == nullptr) return;
  for (int64_t i = 0; i < kQueries; ++i) {
    const int64_t query = block.query + std::min(i, block.queries - 1);
    scratch.first_keys[i] = static_cast<int32_t>(p.first_key(block.b, query));
  }
  block.first_keys = scratch.first_keys;
  block.key = scratch.first_keys[0] / kKeys * kKeys;
}

WEFT_CLONES void multiply_tiles(const float* a, const float* b, int64_t rows, float* to) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < rows * kTileStride; ++i) to[i] = a[i] * b[i];
}

void fill_kept(const Problem& p, const Block& block, Scratch& scratch) {
  float ones[kKeys], row[kKeys];
  std::fill(ones, ones + kKeys, 1.0f);
  const int64_t shard = p.dropout.shard_of(block.b);
  for (int64_t i = 0; i < block.queries; ++i) {
    const int64_t query = (shard * p.heads + block.head) * p.time + block.query + i;
    apply_dropout(p.dropout, static_cast<uint64_t>(query * p.time + block.key), block.keys, ones,
                  row);
    for (int64_t k = 0; k < block.keys; ++k) scratch.kept[k * kTileStride + i] = row[k];
  }
}

void multiply_keys(const Problem& p, const float* keys, const Block& block, const float* queries,
                   float* tile) {
  const int64_t lane = packed_depth(*p.tensors, p.dim);
  for_groups(block, [&](int64_t i, int64_t n, int64_t rows) {
    multiply_packed(*p.tensors, {rows, n, p.dim},
                    {keys + PackedHead::offset(block.key, p.dim), lane}, {queries + i * lane, lane},
                    tile + i, kTileStride, GemmMode::Store);
  });
}

void add_matmul(const Problem& p, const float* transposed, const Block& block, const float* tile,
                Scratch& scratch) {
  const int64_t block_keys = std::min(kKeys, p.time - block.key);
  for_groups(block, [&](int64_t i, int64_t n, int64_t rows) {
    multiply_right_tile(*p.computed, {p.dim, n, rows},
                        {transposed + PackedHead::offset(block.key, p.dim), block_keys}, tile + i,
                        scratch.sum + i, kTileStride, GemmMode::Add);
  });
}

int64_t packed_bytes(const Call& call, size_t qkv, int64_t factors) {
  const Shape& shape = call.type(qkv).shape;
  const int64_t kv_heads = call.int_attr("kv_heads");
  const int64_t dim = shape[2] / (call.int_attr("heads") + 2 * kv_heads);
  return shape[0] * kv_heads * PackedHead::floats(shape[1], dim, factors) *
         static_cast<int64_t>(sizeof(float));
}

Decision supports_at(const Call& call, size_t qkv) {
  Decision decision = supports_cpu_dtypes(call);
  const int64_t parts = call.int_attr("heads") + 2 * call.int_attr("kv_heads");
  const int64_t dim = call.type(qkv).shape.at(2) / parts;
  if (decision.allowed && dim > kMaxHeadDim) {
    return Decision::no(cat("takes heads of up to ", kMaxHeadDim, " dims, found ", dim));
  }
  return decision;
}

}  // namespace weft::attention

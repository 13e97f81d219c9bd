#include "runtime/cpu/attention_blocks.h"

namespace weft::attention {

namespace {

AttentionHeads heads_at(const Call& call, const Places& places) {
  return attention_heads(call, call.type(places.q).shape.at(2), places.q == places.kv);
}

}  // namespace

Problem problem_of(const Launch& launch, const Places& places) {
  const Call& call = *launch.call;
  const Tensor& q = launch.operands.at(places.q);
  const Tensor& kv = launch.operands.at(places.kv);
  const bool packed = places.q == places.kv;
  Problem p;
  p.batch = q.shape[0];
  p.heads = heads_at(call, places);
  p.queries = q.shape[1];
  p.keys = kv.shape[1];
  p.shard = p.key_shard = {.size = p.queries};
  if (!packed) {
    const int64_t blocks = call.int_attr("blocks");
    p.shard = {.size = p.queries,
               .shards = blocks > 1 ? blocks : p.keys / p.queries,
               .index = scalar_i32(launch.operands.at(places.coordinate))};
    p.key_shard = keys_of(p.shard, blocks, call.int_attr("block"));
  }
  p.run_rows = p.queries / p.shard.runs();
  p.q_width = row_length(q);
  p.kv_width = row_length(kv);
  p.q = matrix(q.data, q.dtype, p.q_width);
  p.kv = matrix(kv.data, kv.dtype, p.kv_width);
  p.first_k = packed ? p.heads.q_width() : 0;
  p.first_v = p.first_k + p.heads.k_width();
  p.tensors = &gemm_variant(q.dtype, q.dtype);
  p.computed = &gemm_variant(DType::F32, q.dtype);
  p.scale = static_cast<float>(attention_scale(call, p.heads.dim));
  const double rate = call.double_attr("dropout");
  p.drop = rate > 0;
  if (p.drop) {
    p.dropout = make_dropout(launch.operands.at(places.rng), call.int_attr("stream"), rate);
  }
  if (places.positions > 0) p.positions = launch.operands.at(places.positions).as<int32_t>();
  p.chunk = call.int_attr("chunk");
  return p;
}

int64_t query_blocks(const Problem& p) {
  return p.queries / p.run_rows * ceil_div(p.run_rows, kQueries);
}

Block query_block(const Problem& p, int64_t b, int64_t head, int64_t index) {
  const int64_t per_run = ceil_div(p.run_rows, kQueries);
  const int64_t in_run = index % per_run * kQueries;
  const int64_t query = index / per_run * p.run_rows + in_run;
  return {.b = b,
          .head = head,
          .query = query,
          .queries = std::min(kQueries, p.run_rows - in_run),
          .run = {}};
}

void begin_run(const Problem& p, int64_t run, Block& block, Scratch& scratch) {
  block.run = p.key_shard.run(run);
  block.row = p.shard.in_full(block.query) - block.run.row;
  block.key = 0;
  if (p.all_see_first_key()) return;
  for (int64_t i = 0; i < kQueries; ++i) {
    const int64_t query = block.query + std::min(i, block.queries - 1);
    const int64_t first = p.first_key(block.b, query) - block.run.row;
    scratch.first_keys[i] = static_cast<int32_t>(std::max<int64_t>(first, 0));
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
  const int64_t length = p.shard.full_size();
  for (int64_t i = 0; i < block.queries; ++i) {
    const int64_t query = (shard * p.heads.q + block.head) * length + block.run.row + block.row + i;
    const int64_t first = query * length + block.run.row + block.key;
    apply_dropout(p.dropout, static_cast<uint64_t>(first), block.keys, ones, row);
    for (int64_t k = 0; k < block.keys; ++k) scratch.kept[k * kTileStride + i] = row[k];
  }
}

void multiply_keys(const Problem& p, const HeadFactor& keys, const Block& block,
                   const float* queries, float* tile) {
  const int64_t lane = packed_depth(*p.tensors, keys.dim);
  for_groups(block, [&](int64_t i, int64_t n, int64_t rows) {
    multiply_packed(*p.tensors, {rows, n, keys.dim},
                    {keys.data + PackedHead::offset(p, block.run, block.key), lane},
                    {queries + i * lane, lane}, tile + i, kTileStride, GemmMode::Store);
  });
}

void add_matmul(const Problem& p, const HeadFactor& transposed, const Block& block,
                const float* tile, Scratch& scratch) {
  const int64_t block_keys = std::min(kKeys, block.run.size - block.key);
  for_groups(block, [&](int64_t i, int64_t n, int64_t rows) {
    multiply_right_tile(*p.computed, {transposed.dim, n, rows},
                        {transposed.data + PackedHead::offset(p, block.run, block.key), block_keys},
                        tile + i, scratch.sum + i, kTileStride, GemmMode::Add);
  });
}

int64_t packed_bytes(const Call& call, const Places& places, int64_t factors) {
  const Shape& shape = call.type(places.kv).shape;
  const bool packed = places.q == places.kv;
  const int64_t runs = !packed && call.int_attr("blocks") > 1 ? 2 : 1;
  const AttentionHeads heads = heads_at(call, places);
  return shape[0] * heads.kv *
         PackedHead::floats(runs, shape[1] / runs, std::max(heads.dim, heads.value_dim), factors) *
         static_cast<int64_t>(sizeof(float));
}

Decision supports_at(const Call& call, const Places& places) {
  Decision decision = supports_cpu_dtypes(call);
  const AttentionHeads heads = heads_at(call, places);
  const int64_t dim = std::max(heads.dim, heads.value_dim);
  if (decision.allowed && dim > kMaxHeadDim) {
    return Decision::no(cat("takes heads of up to ", kMaxHeadDim, " dims, found ", dim));
  }
  return decision;
}

}  // namespace weft::attention

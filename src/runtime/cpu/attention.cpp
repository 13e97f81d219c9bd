// Causal attention over packed q | k | v, or over q and k | v. Each query keeps a running maximum
// and sum that absorb one block of keys after another; they may begin with the y and lse of
// earlier keys. Tasks are blocks of queries of one head.
#include <cmath>
#include <limits>

#include "runtime/cpu/attention_blocks.h"

namespace weft {

using namespace attention;

namespace {

constexpr int64_t kFactors = 2;  // per packed head: k and v

// Where query i of the block has its row of y, and the block its lse.
int64_t y_offset(const Problem& p, const Block& block, int64_t i) {
  return (block.b * p.queries + block.query + i) * p.heads.y_width() +
         block.head * p.heads.value_dim;
}
int64_t lse_offset(const Problem& p, const Block& block) {
  return (block.b * p.heads.q + block.head) * p.queries + block.query;
}

// Scores become exp(scale * score - maximum), given the maximum and the sum of earlier blocks.
WEFT_CLONES void softmax_column(const Column& s, float scale, float* top, float* total,
                                float* shrink) {
  mask(s);
  const Lanes before = lanes_at(top);
  Lanes most = before;
  for (int64_t k = 0; k < s.rows; ++k) {
    const Lanes next = s.row(k) * scale;
    most = next > most ? next : most;
  }
  // A query whose document has not begun yet has no maximum.
  const Lanes shift = most > Lanes{} - __builtin_inff() ? most : Lanes{};
  Lanes sum{};
  for (int64_t k = 0; k < s.rows; ++k) {
    const Lanes value = exp_f32(s.row(k) * scale - shift);
    s.row(k) = value;
    sum += value;
  }
  s.clear_rest();
  const Lanes less = exp_f32(before - shift);
  lanes_at(shrink) = less;
  lanes_at(total) = lanes_at(total) * less + sum;
  lanes_at(top) = most;
}

// Multiplies each row of a tile by `factors`.
WEFT_CLONES void scale_columns(const float* factors, int64_t rows, float* tile) {
  for (int64_t i = 0; i < kQueries; i += kLanes) {
    const Lanes factor = lanes_at(factors + i);
    for (int64_t row = 0; row < rows; ++row) lanes_at(tile + row * kTileStride + i) *= factor;
  }
}

// What earlier calls computed from other keys; both are null if there were none.
struct Earlier {
  const float* y = nullptr;
  const float* lse = nullptr;
};

// Adds one block of keys to the running maximum, sum and weighted values.
void attend(const Problem& p, const PackedHead& packed, const Block& block, Scratch& scratch) {
  multiply_keys(p, {packed.k, p.heads.dim}, block, scratch.queries, scratch.p);
  for_columns(block, [&](int64_t i) {
    softmax_column(Column(scratch.p, block, i), p.scale, scratch.top + i, scratch.total + i,
                   scratch.shrink + i);
  });
  scale_columns(scratch.shrink, p.heads.value_dim, scratch.sum);
  if (p.drop) {
    fill_kept(p, block, scratch);
    multiply_tiles(scratch.p, scratch.kept, block.keys, scratch.p);
  }
  add_matmul(p, {packed.v, p.heads.value_dim}, block, scratch.p, scratch);
}

// The maximum, sum and weighted values before the first block of keys: y with a sum of 1.
void begin_sums(const Problem& p, const Block& block, const Earlier& earlier, Scratch& scratch) {
  std::fill(scratch.top, scratch.top + kQueries, -std::numeric_limits<float>::infinity());
  std::fill(scratch.total, scratch.total + kQueries, 0.0f);
  std::fill(scratch.sum, scratch.sum + p.heads.value_dim * kTileStride, 0.0f);
  if (earlier.y == nullptr) return;
  for (int64_t i = 0; i < block.queries; ++i) {
    const float lse = earlier.lse[lse_offset(p, block) + i];
    if (!(lse > -std::numeric_limits<float>::infinity())) continue;
    scratch.top[i] = lse;
    scratch.total[i] = 1;
    const float* y = earlier.y + y_offset(p, block, i);
    for (int64_t d = 0; d < p.heads.value_dim; ++d) scratch.sum[d * kTileStride + i] = y[d];
  }
}

void attend_all(const Problem& p, const PackedHead& packed, const Block& queries,
                const Earlier& earlier, Scratch& scratch) {
  begin_sums(p, queries, earlier, scratch);
  for_seen_keys(p, queries, scratch,
                [&](const Block& block) { attend(p, packed, block, scratch); });
  float* inverse = scratch.shrink;
  for (int64_t i = 0; i < kQueries; ++i) {
    inverse[i] = scratch.total[i] > 0 ? 1.0f / scratch.total[i] : 0.0f;
  }
  scale_columns(inverse, p.heads.value_dim, scratch.sum);
}

void forward(const Launch& launch, const Problem& p, const Places& places) {
  const Tensor& y = launch.results.at(0);
  float* lse = launch.results.at(1).as<float>();
  Earlier earlier;
  if (places.adds) {
    earlier = {launch.operands.at(places.kv + 1).as<float>(),
               launch.operands.at(places.kv + 2).as<float>()};
  }
  team(launch).run(p.batch * p.heads.kv, [&](int64_t task) {
    const PackedHead packed(launch.workspace, task, p, kFactors);
    const int64_t b = task / p.heads.kv, kv_head = task % p.heads.kv;
    for_key_blocks(p, [&](int64_t key, int64_t keys, int64_t offset) {
      pack_left(*p.tensors, p.k_from(b, key, kv_head), keys, p.heads.dim, packed.k + offset);
      pack_left(*p.computed, transposed(p.v_from(b, key, kv_head)), p.heads.value_dim, keys,
                packed.v + offset);
    });
  });
  const int64_t blocks = query_blocks(p);
  team(launch).run(p.batch * p.heads.q * blocks, [&](int64_t task, float* memory) {
    Scratch& scratch = *reinterpret_cast<Scratch*>(memory);
    // The last block of queries has the most keys; it goes first, so that all threads finish
    // together.
    const Block block = query_block(p, task / blocks / p.heads.q, task / blocks % p.heads.q,
                                    blocks - 1 - task % blocks);
    pack_right(*p.tensors, transposed(p.q_from(block.b, block.query, block.head)), p.heads.dim,
               block.queries, scratch.queries);
    attend_all(p,
               PackedHead(launch.workspace, block.b * p.heads.kv + block.head / p.heads.group(), p,
                          kFactors),
               block, earlier, scratch);
    for_sum_rows(p, p.heads.value_dim, block, scratch,
                 [&](int64_t i, int64_t col, int64_t n, const float* values) {
                   const int64_t offset = y_offset(p, block, i) + col;
                   if (y.dtype == DType::F32) std::copy(values, values + n, y.as<float>() + offset);
                   store(y, offset, n, values);
                 });
    float* block_lse = lse + lse_offset(p, block);
    for (int64_t i = 0; i < block.queries; ++i) {
      block_lse[i] = scratch.top[i] + std::log(scratch.total[i]);
    }
  });
}

template <const Places& kPlaces>
void launch_attention(const Launch& launch) {
  forward(launch, problem_of(launch, kPlaces), kPlaces);
}

template <const Places& kPlaces>
int64_t workspace(const Call& call) {
  return packed_bytes(call, kPlaces, kFactors);
}

template <const Places& kPlaces>
Decision supports(const Call& call) {
  return supports_at(call, kPlaces);
}

template <const Places& kPlaces>
Kernel row(std::string_view op) {
  return {op, "blocks", supports<kPlaces>, workspace<kPlaces>, launch_attention<kPlaces>};
}

}  // namespace

std::span<const Kernel> cpu_attention_kernels() {
  static const Kernel rows[] = {
      row<kPacked>("attention"),
      row<kPackedDocuments>("document_attention"),
      row<kContext>("context_attention"),
      row<kContextMore>("context_attention_more"),
  };
  return rows;
}

}  // namespace weft

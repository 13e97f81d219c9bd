// Shared by attention's forward and backward. Both go block by block over keys and queries, so
// scores never leave a thread's scratch memory. A block of scores is a tile with a row per key and
// a column per query: maxima, sums and exponentials run over vectors of queries, and the tile is
// usable as a factor of the next matmul without packing. Blocks of keys that no query of a block
// sees, because they belong to other documents, are skipped.
#pragma once

#include <algorithm>

#include "plan/attention_heads.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/random.h"
#include "runtime/cpu/simd.h"

namespace weft::attention {

inline constexpr int64_t kQueries = kTileStride;  // per block
// Per block: full panels of every variant. A tile of them takes 24 KiB, so that a block's working
// set stays in a core's private caches.
inline constexpr int64_t kKeys = kGemmPanelRows;
inline constexpr int64_t kGroup = 32;  // queries that multiply the same keys
inline constexpr int64_t kMaxHeadDim = 256;
inline constexpr int64_t kMaxPadded = kMaxHeadDim + kGemmPadding;
static_assert(kQueries == 2 * kGroup && kGroup % kLanes == 0 && kGroup % kGemmPadding == 0);
static_assert(kKeys <= kGemmDepth && kMaxHeadDim <= kGemmDepth);

// Scratch memory of one thread.
struct Scratch {
  float queries[kMaxHeadDim * kQueries];  // packed right factors: dim x queries
  float dy[kMaxHeadDim * kQueries];
  float query_rows[kQueries * kMaxPadded];  // packed right factors: queries x dim
  float dy_rows[kQueries * kMaxPadded];
  float p[kKeys * kQueries];
  float dp[kKeys * kQueries];
  float kept[kKeys * kQueries];         // dropout factors of p
  float sum[kMaxPadded * kQueries];     // tile: dim x queries
  float turned[kQueries * kMaxPadded];  // the columns of that tile as rows, in panels
  float top[kQueries];
  float total[kQueries];
  float shrink[kQueries];
  float delta[kQueries];
  float row[2 * kMaxHeadDim];
  int32_t first_keys[kQueries];
};
static_assert(sizeof(Scratch) <= ThreadTeam::kScratchFloats * sizeof(float));

struct Problem {
  int64_t batch = 0;
  AttentionHeads heads;
  int64_t queries = 0, keys = 0;  // rows of a sample
  // The queries are these rows of the sequence: all, or a run near its head and one near its tail.
  // A block of queries lies in one run.
  ContextShard shard;
  int64_t run_rows = 0;
  ContextShard key_shard;  // the rows of the sequence that the keys are
  // Row-major views of both operands; of packed qkv they are the same.
  MatrixView q, kv;
  int64_t q_width = 0, kv_width = 0;  // of their rows
  int64_t first_k = 0, first_v = 0;   // columns in kv
  float scale = 1;
  bool drop = false;
  Dropout dropout;
  const int32_t* positions = nullptr;  // within documents; null: each sample is one document
  int64_t chunk = 0;                   // of positions that see each other; 0: all do

  // For matmuls of two tensors, and for those with values that a thread computed.
  const GemmVariant* tensors = nullptr;
  const GemmVariant* computed = nullptr;

  // The first key that a query sees; does not decrease with the query within a run.
  int64_t first_key(int64_t b, int64_t query) const {
    const int64_t row = shard.in_full(query);
    return row - keys_before(positions == nullptr ? row : positions[b * queries + query], chunk);
  }
  bool all_see_first_key() const { return positions == nullptr && chunk == 0; }
  // Packed factors of both kinds of heads have the size of the larger.
  int64_t larger_dim() const { return std::max(heads.dim, heads.value_dim); }
  // First columns of a head's q, k and v.
  int64_t q_col(int64_t head) const { return head * heads.dim; }
  int64_t k_col(int64_t kv_head) const { return first_k + kv_head * heads.dim; }
  int64_t v_col(int64_t kv_head) const { return first_v + kv_head * heads.value_dim; }
  // Views of a head from a row on: of q, k, v, and of y or its gradient.
  MatrixView q_from(int64_t b, int64_t query, int64_t head) const {
    return from(q, b * queries + query, q_col(head));
  }
  MatrixView k_from(int64_t b, int64_t key, int64_t kv_head) const {
    return from(kv, b * keys + key, k_col(kv_head));
  }
  MatrixView v_from(int64_t b, int64_t key, int64_t kv_head) const {
    return from(kv, b * keys + key, v_col(kv_head));
  }
  MatrixView heads_of(const Tensor& y, int64_t b, int64_t query, int64_t head) const {
    return from(matrix(y.data, y.dtype, heads.y_width()), b * queries + query,
                head * heads.value_dim);
  }
};

// Operand numbers. q and kv are the same for packed qkv; 0 means that there is no such operand for
// the others.
struct Places {
  size_t q = 0, kv = 0, positions = 0, coordinate = 0, rng = 0;
  bool adds = false;  // to y and lse, which follow kv
};
inline constexpr Places kPacked{.rng = 1};
inline constexpr Places kPackedDocuments{.positions = 1, .rng = 2};
inline constexpr Places kContext{.q = 0, .kv = 1, .positions = 2, .coordinate = 3, .rng = 4};
inline constexpr Places kContextMore{
    .q = 0, .kv = 1, .positions = 4, .coordinate = 5, .rng = 6, .adds = true};
inline constexpr Places kPackedGrad{.q = 1, .kv = 1, .rng = 4};
inline constexpr Places kPackedDocumentsGrad{.q = 1, .kv = 1, .positions = 4, .rng = 5};
inline constexpr Places kContextGrad{.q = 1, .kv = 2, .positions = 5, .coordinate = 6, .rng = 7};

Problem problem_of(const Launch& launch, const Places& places);

// A block of queries of one head against a block of keys.
struct Block {
  int64_t b = 0, head = 0;
  int64_t query = 0, queries = 0;
  ContextRun run;   // of keys; rows are counted from its first
  int64_t row = 0;  // of the first query
  int64_t key = 0, keys = 0;
  const int32_t* first_keys = nullptr;  // first key that each query sees; null: all see key 0

  // Keys that at least one of the `n` queries from query `i` of the block on may see.
  int64_t visible(int64_t i, int64_t n) const {
    return std::clamp<int64_t>(row + i + n - key, 0, keys);
  }
};

// Calls fn(first query, queries, visible keys) for the groups of a block.
template <class Fn>
void for_groups(const Block& block, const Fn& fn) {
  for (int64_t i = 0; i < block.queries; i += kGroup) {
    fn(i, std::min(kGroup, block.queries - i), block.visible(i, kGroup));
  }
}

// How many blocks of queries a head has, and number `index` of them.
int64_t query_blocks(const Problem& p);
Block query_block(const Problem& p, int64_t b, int64_t head, int64_t index);

// Sets the block to the first block of keys of run number `run` that its queries see.
void begin_run(const Problem& p, int64_t run, Block& block, Scratch& scratch);

// Calls fn(block) for the blocks of keys that the queries of the block see, in the order of the
// sequence.
template <class Fn>
void for_seen_keys(const Problem& p, Block block, Scratch& scratch, const Fn& fn) {
  for (int64_t run = 0; run < p.key_shard.runs(); ++run) {
    begin_run(p, run, block, scratch);
    const int64_t end = std::min(block.row + block.queries, block.run.size);
    for (; block.key < end; block.key += kKeys) {
      block.keys = std::min(kKeys, end - block.key);
      fn(block);
    }
  }
}

// Sixteen columns of a tile. Query j sees rows up to `first` + j, but only from first_keys[j] - key
// on; `rows` are those that at least one of them sees.
struct Column {
  float* data;
  int64_t first, rows, key, keys;
  const int32_t* first_keys;

  Column(float* tile, const Block& block, int64_t i)
      : data(tile + i),
        first(block.row + i - block.key),
        rows(block.visible(i, kLanes)),
        key(block.key),
        keys(block.keys),
        first_keys(block.first_keys == nullptr ? nullptr : block.first_keys + i) {}

  Lanes& row(int64_t k) const { return lanes_at(data + k * kTileStride); }
  void clear_rest() const {
    for (int64_t k = rows; k < keys; ++k) row(k) = Lanes{};
  }
};

// Sets scores that a query does not see to minus infinity.
[[gnu::always_inline]] inline void mask(const Column& s) {
  IntLanes lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  for (int64_t k = std::max<int64_t>(0, s.first + 1); k < s.rows; ++k) {
    const IntLanes seen = lane >= static_cast<int32_t>(k - s.first);
    s.row(k) = seen ? s.row(k) : Lanes{} - __builtin_inff();
  }
  if (s.first_keys == nullptr) return;
  IntLanes hidden;
  for (int i = 0; i < kLanes; ++i) hidden[i] = s.first_keys[i] - static_cast<int32_t>(s.key);
  for (int64_t k = 0; k < std::min<int64_t>(s.rows, hidden[kLanes - 1]); ++k) {
    const IntLanes seen = hidden <= static_cast<int32_t>(k);
    s.row(k) = seen ? s.row(k) : Lanes{} - __builtin_inff();
  }
}

// Calls fn(first query) for the columns of a block; the last may reach past the queries.
template <class Fn>
void for_columns(const Block& block, const Fn& fn) {
  for (int64_t i = 0; i < block.queries; i += kLanes) fn(i);
}

// to = a * b elementwise, for tiles.
void multiply_tiles(const float* a, const float* b, int64_t rows, float* to);

// Computes the dropout factors of the block's probabilities.
void fill_kept(const Problem& p, const Block& block, Scratch& scratch);

// The keys and values of one key head, packed in blocks of kKeys as left factors.
struct PackedHead {
  float* k = nullptr;             // keys x dim
  float* v = nullptr;             // keys x dim in the backward, dim x keys in the forward
  float* k_transposed = nullptr;  // dim x keys, in the backward

  static int64_t block_floats(int64_t dim) {
    return kKeys * largest_packed_depth(ceil_div(dim, kGemmF32PanelRows) * kGemmF32PanelRows);
  }
  // `runs` of `keys` keys each.
  static int64_t floats(int64_t runs, int64_t keys, int64_t dim, int64_t factors) {
    return runs * ceil_div(keys, kKeys) * block_floats(dim) * factors;
  }
  static int64_t floats(const Problem& p, int64_t factors) {
    const int64_t runs = p.key_shard.runs();
    return floats(runs, p.keys / runs, p.larger_dim(), factors);
  }
  // Part `index` of a workspace of heads with `factors` factors each.
  PackedHead(void* workspace, int64_t index, const Problem& p, int64_t factors) {
    const int64_t each = floats(p, 1);
    k = static_cast<float*>(workspace) + index * factors * each;
    v = k + each;
    k_transposed = v + each;
  }
  // Offset in floats of the block of keys that starts at `key` of the run, within a packed factor.
  static int64_t offset(const Problem& p, const ContextRun& run, int64_t key) {
    const int64_t before = run.at == 0 ? 0 : ceil_div(run.size, kKeys);  // run.at is 0 or run.size
    return (before + key / kKeys) * block_floats(p.larger_dim());
  }
};

// Calls fn(first key, keys, offset of the block in a packed factor) for all blocks of keys, except
// for runs that come after all queries.
template <class Fn>
void for_key_blocks(const Problem& p, const Fn& fn) {
  const int64_t last = p.shard.in_full(p.queries - 1);
  for (int64_t number = 0; number < p.key_shard.runs(); ++number) {
    const ContextRun run = p.key_shard.run(number);
    if (run.row > last) continue;
    for (int64_t key = 0; key < run.size; key += kKeys) {
      fn(run.at + key, std::min(kKeys, run.size - key), PackedHead::offset(p, run, key));
    }
  }
}

// A packed factor of heads of this size.
struct HeadFactor {
  const float* data;
  int64_t dim;
};

// tile = keys (or values) times the packed queries (or their dy).
void multiply_keys(const Problem& p, const HeadFactor& keys, const Block& block,
                   const float* queries, float* tile);

// scratch.sum += values (or keys), dim x keys, times the tile.
void add_matmul(const Problem& p, const HeadFactor& transposed, const Block& block,
                const float* tile, Scratch& scratch);

// Calls fn(query, first column, columns, values) for the queries of scratch.sum, whose rows have
// `dim` elements, a part of a row at a time.
template <class Fn>
void for_sum_rows(const Problem& p, int64_t dim, const Block& block, Scratch& scratch,
                  const Fn& fn) {
  pack_right(*p.computed, transposed(matrix(scratch.sum, DType::F32, kTileStride)), block.queries,
             dim, scratch.turned);
  const int64_t width = p.computed->panel_cols;
  for (int64_t i = 0; i < block.queries; ++i) {
    for (int64_t col = 0; col < dim; col += width) {
      fn(i, col, std::min(width, dim - col), scratch.turned + col * block.queries + i * width);
    }
  }
}

// Bytes of the packed heads.
int64_t packed_bytes(const Call& call, const Places& places, int64_t factors);

// Whether these kernels support the heads of a call.
Decision supports_at(const Call& call, const Places& places);

}  // namespace weft::attention

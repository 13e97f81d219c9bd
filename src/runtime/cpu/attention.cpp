// Causal attention over packed q | k | v, block by block of keys and queries, so that scores never
// leave a thread's scratch memory. A block of scores is a tile: a row for each key and a column for
// each query, so that maxima, sums and exponentials run over vectors of queries and the tile is a
// factor of the next product as it is. The forward keeps a running maximum and sum for each query;
// the backward makes the probabilities again from the saved lse. Blocks of keys that no query of a
// block sees, as they belong to other documents, are passed over. Forward tasks are blocks of
// queries of one head; backward tasks are key heads with all the query heads that read them, so
// that nothing is summed across threads.
#include <cmath>
#include <limits>

#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/random.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

constexpr int64_t kQueries = kTileStride;  // in a block
constexpr int64_t kKeys = 96;              // in a block
constexpr int64_t kGroup = 32;             // queries that multiply the same keys
constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kMaxPadded = kMaxHeadDim + kGemmPadding;
static_assert(kQueries == 2 * kGroup && kGroup % kLanes == 0 && kGroup % kGemmPadding == 0);
static_assert(kKeys % kGemmPanelRows == 0 && kKeys <= kGemmDepth && kMaxHeadDim <= kGemmDepth);

// One thread's scratch memory.
struct Scratch {
  float queries[kMaxHeadDim * kQueries];  // packed right factors: dim x queries
  float dy[kMaxHeadDim * kQueries];
  float query_rows[kQueries * kMaxPadded];  // packed right factors: queries x dim
  float dy_rows[kQueries * kMaxPadded];
  float p[kKeys * kQueries];
  float dp[kKeys * kQueries];
  float kept[kKeys * kQueries];         // what dropout multiplies p with
  float sum[kMaxPadded * kQueries];     // tile: dim x queries
  float turned[kQueries * kMaxPadded];  // that tile's columns as rows, in panels
  float top[kQueries];
  float total[kQueries];
  float shrink[kQueries];
  float delta[kQueries];
  float row[2 * kMaxHeadDim];
  int32_t first_keys[kQueries];
};
static_assert(sizeof(Scratch) <= ThreadTeam::kScratchFloats * sizeof(float));

struct Problem {
  int64_t batch = 0, time = 0, heads = 0, kv_heads = 0, dim = 0;
  float scale = 1;
  bool drop = false;
  Dropout dropout;
  const int32_t* positions = nullptr;  // of tokens in their documents; null: samples are documents

  // For products of two tensors, and for those with what a thread computed.
  const GemmVariant* tensors = nullptr;
  const GemmVariant* computed = nullptr;

  // The first key that a query sees; never less than that of the query before.
  int64_t first_key(int64_t b, int64_t query) const {
    return positions == nullptr ? 0 : query - positions[b * time + query];
  }
  int64_t width() const { return (heads + 2 * kv_heads) * dim; }
  int64_t group() const { return heads / kv_heads; }
  // First columns of a head's q, k and v in a row of qkv.
  int64_t q_col(int64_t head) const { return head * dim; }
  int64_t k_col(int64_t kv_head) const { return (heads + kv_head) * dim; }
  int64_t v_col(int64_t kv_head) const { return (heads + kv_heads + kv_head) * dim; }
  // Row-major views of qkv and of y from a position on.
  MatrixView packed(const Tensor& qkv, int64_t b, int64_t t, int64_t col) const {
    return from(matrix(qkv.data, qkv.dtype, width()), b * time + t, col);
  }
  MatrixView heads_of(const Tensor& y, int64_t b, int64_t t, int64_t head) const {
    return from(matrix(y.data, y.dtype, heads * dim), b * time + t, head * dim);
  }
};

// Which operands are which; positions 0 stands for none.
struct Places {
  size_t qkv = 0, rng = 0, positions = 0;
};

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

// A block of queries of one head against a block of keys.
struct Block {
  int64_t b = 0, head = 0;
  int64_t query = 0, queries = 0;
  int64_t key = 0, keys = 0;
  const int32_t* first_keys = nullptr;  // that each query sees; null: all see key 0

  // Keys that at least one of `n` queries from query `i` of the block on may see.
  int64_t visible(int64_t i, int64_t n) const {
    return std::clamp<int64_t>(query + i + n - key, 0, keys);
  }
};

// Calls fn(first query, queries, visible keys) for the groups of a block.
template <class Fn>
void for_groups(const Block& block, const Fn& fn) {
  for (int64_t i = 0; i < block.queries; i += kGroup) {
    fn(i, std::min(kGroup, block.queries - i), block.visible(i, kGroup));
  }
}

// Begins with the first block of keys that a block of queries sees.
void begin_keys(const Problem& p, Block& block, Scratch& scratch) {
  if (p.positions == nullptr) return;
  for (int64_t i = 0; i < kQueries; ++i) {
    const int64_t query = block.query + std::min(i, block.queries - 1);
    scratch.first_keys[i] = static_cast<int32_t>(p.first_key(block.b, query));
  }
  block.first_keys = scratch.first_keys;
  block.key = scratch.first_keys[0] / kKeys * kKeys;
}

// Sixteen columns of a tile. Query j of them sees the rows up to `first` + j, and those alone from
// first_keys[j] - key on; `rows` are those that at least one sees.
struct Column {
  float* data;
  int64_t first, rows, key, keys;
  const int32_t* first_keys;

  Column(float* tile, const Block& block, int64_t i)
      : data(tile + i),
        first(block.query + i - block.key),
        rows(block.visible(i, kLanes)),
        key(block.key),
        keys(block.keys),
        first_keys(block.first_keys == nullptr ? nullptr : block.first_keys + i) {}

  Lanes& row(int64_t k) const { return lanes_at(data + k * kTileStride); }
  void clear_rest() const {
    for (int64_t k = rows; k < keys; ++k) row(k) = Lanes{};
  }
};

// Sets what a query does not see to minus infinity.
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

// Scores become exp(scale * score - maximum), with the maximum and the sum of those before them.
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

// Scores become probabilities.
WEFT_CLONES void probability_column(const Column& s, float scale, const float* lse) {
  mask(s);
  const Lanes shift = lanes_at(lse);
  for (int64_t k = 0; k < s.rows; ++k) s.row(k) = exp_f32(s.row(k) * scale - shift);
  s.clear_rest();
}

// ds = p * (dp - delta) * scale, in place of dp.
WEFT_CLONES void score_grad_column(const Column& p, const Column& dp, float scale,
                                   const float* delta) {
  const Lanes less = lanes_at(delta);
  for (int64_t k = 0; k < p.rows; ++k) dp.row(k) = p.row(k) * (dp.row(k) - less) * scale;
  dp.clear_rest();
}

// Multiplies each row of a tile by `factors`, or a tile by another one.
WEFT_CLONES void scale_columns(const float* factors, int64_t rows, float* tile) {
  for (int64_t i = 0; i < kQueries; i += kLanes) {
    const Lanes factor = lanes_at(factors + i);
    for (int64_t row = 0; row < rows; ++row) lanes_at(tile + row * kTileStride + i) *= factor;
  }
}
WEFT_CLONES void multiply_tiles(const float* a, const float* b, int64_t rows, float* to) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < rows * kTileStride; ++i) to[i] = a[i] * b[i];
}

// Calls fn(first query) for the columns of a block; the last may reach past the queries.
template <class Fn>
void for_columns(const Block& block, const Fn& fn) {
  for (int64_t i = 0; i < block.queries; i += kLanes) fn(i);
}

// What dropout multiplies the block's probabilities with.
void fill_kept(const Problem& p, const Block& block, Scratch& scratch) {
  float ones[kKeys], row[kKeys];
  std::fill(ones, ones + kKeys, 1.0f);
  const int64_t sample = p.dropout.first_sample + block.b;
  for (int64_t i = 0; i < block.queries; ++i) {
    const int64_t query = (sample * p.heads + block.head) * p.time + block.query + i;
    apply_dropout(p.dropout, static_cast<uint64_t>(query * p.time + block.key), block.keys, ones,
                  row);
    for (int64_t k = 0; k < block.keys; ++k) scratch.kept[k * kTileStride + i] = row[k];
  }
}

// The keys and values of one key head, packed in blocks of kKeys as left factors.
struct PackedHead {
  float* k = nullptr;             // keys x dim
  float* v = nullptr;             // keys x dim in the backward, dim x keys in the forward
  float* k_transposed = nullptr;  // dim x keys, in the backward

  static int64_t block_floats(int64_t dim) {
    return kKeys * largest_packed_depth(ceil_div(dim, kGemmF32PanelRows) * kGemmF32PanelRows);
  }
  static int64_t floats(int64_t time, int64_t dim, int64_t factors) {
    return ceil_div(time, kKeys) * block_floats(dim) * factors;
  }
  // Part `index` of a workspace that holds heads of so many factors.
  PackedHead(void* workspace, int64_t index, const Problem& p, int64_t factors) {
    const int64_t each = floats(p.time, p.dim, 1);
    k = static_cast<float*>(workspace) + index * factors * each;
    v = k + each;
    k_transposed = v + each;
  }
  // Floats from a packed factor's start to the block of keys that starts at `key`.
  static int64_t offset(int64_t key, int64_t dim) { return key / kKeys * block_floats(dim); }
};

// Calls fn(first key, keys, offset of the block in a packed factor) for all blocks of keys.
template <class Fn>
void for_key_blocks(const Problem& p, const Fn& fn) {
  for (int64_t key = 0; key < p.time; key += kKeys) {
    fn(key, std::min(kKeys, p.time - key), PackedHead::offset(key, p.dim));
  }
}

// tile = keys (or values) times the packed queries (or their dy).
void multiply_keys(const Problem& p, const float* keys, const Block& block, const float* queries,
                   float* tile) {
  const int64_t lane = packed_depth(*p.tensors, p.dim);
  for_groups(block, [&](int64_t i, int64_t n, int64_t rows) {
    multiply_packed(*p.tensors, {rows, n, p.dim},
                    {keys + PackedHead::offset(block.key, p.dim), lane}, {queries + i * lane, lane},
                    tile + i, kTileStride, GemmMode::Store);
  });
}

// scratch.sum += values (or keys), dim x keys, times the tile.
void add_products(const Problem& p, const float* transposed, const Block& block, const float* tile,
                  Scratch& scratch) {
  const int64_t block_keys = std::min(kKeys, p.time - block.key);
  for_groups(block, [&](int64_t i, int64_t n, int64_t rows) {
    multiply_right_tile(*p.computed, {p.dim, n, rows},
                        {transposed + PackedHead::offset(block.key, p.dim), block_keys}, tile + i,
                        scratch.sum + i, kTileStride, GemmMode::Add);
  });
}

// Adds tile * rows, keys x queries times queries x dim, to the gradient of the keys or values. The
// rows that only the second group of queries sees are zero for the first.
void add_key_grads(const Problem& p, const Block& block, const float* tile, const float* rows,
                   float* to) {
  const auto add = [&](int64_t key, int64_t keys, int64_t query) {
    multiply_left_tile(*p.computed, {keys, p.dim, block.queries - query},
                       tile + key * kTileStride + query,
                       {rows + query * p.computed->panel_cols, block.queries}, to + key * p.width(),
                       p.width(), GemmMode::Add);
  };
  const int64_t first = block.queries > kGroup ? block.visible(0, kGroup) : block.keys;
  add(0, first, 0);
  add(first, block.keys - first, kGroup);
}

// Calls fn(query, first column, columns, values) for the queries of scratch.sum, in pieces of rows.
template <class Fn>
void for_sum_rows(const Problem& p, const Block& block, Scratch& scratch, const Fn& fn) {
  pack_right(*p.computed, transposed(matrix(scratch.sum, DType::F32, kTileStride)), block.queries,
             p.dim, scratch.turned);
  const int64_t width = p.computed->panel_cols;
  for (int64_t i = 0; i < block.queries; ++i) {
    for (int64_t col = 0; col < p.dim; col += width) {
      fn(i, col, std::min(width, p.dim - col), scratch.turned + col * block.queries + i * width);
    }
  }
}

// Takes one block of keys into the running maximum, sum and weighted values.
void attend(const Problem& p, const PackedHead& packed, const Block& block, Scratch& scratch) {
  multiply_keys(p, packed.k, block, scratch.queries, scratch.p);
  for_columns(block, [&](int64_t i) {
    softmax_column(Column(scratch.p, block, i), p.scale, scratch.top + i, scratch.total + i,
                   scratch.shrink + i);
  });
  if (block.key > 0) scale_columns(scratch.shrink, p.dim, scratch.sum);
  if (p.drop) {
    fill_kept(p, block, scratch);
    multiply_tiles(scratch.p, scratch.kept, block.keys, scratch.p);
  }
  add_products(p, packed.v, block, scratch.p, scratch);
}

void attend_all(const Problem& p, const PackedHead& packed, Block block, Scratch& scratch) {
  std::fill(scratch.top, scratch.top + kQueries, -std::numeric_limits<float>::infinity());
  std::fill(scratch.total, scratch.total + kQueries, 0.0f);
  std::fill(scratch.sum, scratch.sum + p.dim * kTileStride, 0.0f);
  begin_keys(p, block, scratch);
  for (; block.key < block.query + block.queries; block.key += kKeys) {
    block.keys = std::min(kKeys, block.query + block.queries - block.key);
    attend(p, packed, block, scratch);
  }
  float* inverse = scratch.shrink;
  for (int64_t i = 0; i < kQueries; ++i) inverse[i] = 1.0f / scratch.total[i];
  scale_columns(inverse, p.dim, scratch.sum);
}

void forward(const Launch& launch, const Problem& p) {
  const Tensor& qkv = launch.operands[0];
  const Tensor& y = launch.results.at(0);
  float* lse = launch.results.at(1).as<float>();
  constexpr int64_t kFactors = 2;
  team(launch).run(p.batch * p.kv_heads, [&](int64_t task) {
    const PackedHead packed(launch.workspace, task, p, kFactors);
    const int64_t b = task / p.kv_heads, kv_head = task % p.kv_heads;
    for_key_blocks(p, [&](int64_t key, int64_t keys, int64_t offset) {
      pack_left(*p.tensors, p.packed(qkv, b, key, p.k_col(kv_head)), keys, p.dim,
                packed.k + offset);
      pack_left(*p.computed, transposed(p.packed(qkv, b, key, p.v_col(kv_head))), p.dim, keys,
                packed.v + offset);
    });
  });
  const int64_t blocks = ceil_div(p.time, kQueries);
  team(launch).run(p.batch * p.heads * blocks, [&](int64_t task, float* memory) {
    Scratch& scratch = *reinterpret_cast<Scratch*>(memory);
    // The last block of queries has the most keys: first, so that the threads end together.
    Block block{.b = task / blocks / p.heads,
                .head = task / blocks % p.heads,
                .query = (blocks - 1 - task % blocks) * kQueries};
    block.queries = std::min(kQueries, p.time - block.query);
    pack_right(*p.tensors, transposed(p.packed(qkv, block.b, block.query, p.q_col(block.head))),
               p.dim, block.queries, scratch.queries);
    attend_all(
        p, PackedHead(launch.workspace, block.b * p.kv_heads + block.head / p.group(), p, kFactors),
        block, scratch);
    const int64_t first = block.b * p.time + block.query;
    for_sum_rows(p, block, scratch, [&](int64_t i, int64_t col, int64_t n, const float* values) {
      const int64_t offset = ((first + i) * p.heads + block.head) * p.dim + col;
      if (y.dtype == DType::F32) std::copy(values, values + n, y.as<float>() + offset);
      store(y, offset, n, values);
    });
    float* block_lse = lse + (block.b * p.heads + block.head) * p.time + block.query;
    for (int64_t i = 0; i < block.queries; ++i) {
      block_lse[i] = scratch.top[i] + std::log(scratch.total[i]);
    }
  });
}

struct GradTensors {
  const Tensor& dy;
  const Tensor& qkv;
  const Tensor& y;
  const float* lse;
  float* dqkv;  // f32, shaped as qkv
};

// Adds what one block of scores gives to the gradients of its keys and values, and to scratch.sum,
// which is that of its queries.
void attend_grad(const Problem& p, const GradTensors& t, const PackedHead& packed,
                 const Block& block, Scratch& scratch) {
  const int64_t kv_head = block.head / p.group();
  const int64_t width = p.width();
  float* dk = t.dqkv + (block.b * p.time + block.key) * width + p.k_col(kv_head);
  float* dv = t.dqkv + (block.b * p.time + block.key) * width + p.v_col(kv_head);

  multiply_keys(p, packed.k, block, scratch.queries, scratch.p);
  for_columns(block, [&](int64_t i) {
    probability_column(Column(scratch.p, block, i), p.scale, scratch.top + i);
  });
  if (p.drop) {
    // The values saw dropped probabilities; they stand in dp until dp itself is made.
    fill_kept(p, block, scratch);
    multiply_tiles(scratch.p, scratch.kept, block.keys, scratch.dp);
  }
  add_key_grads(p, block, p.drop ? scratch.dp : scratch.p, scratch.dy_rows, dv);
  multiply_keys(p, packed.v, block, scratch.dy, scratch.dp);
  if (p.drop) multiply_tiles(scratch.dp, scratch.kept, block.keys, scratch.dp);
  for_columns(block, [&](int64_t i) {
    score_grad_column(Column(scratch.p, block, i), Column(scratch.dp, block, i), p.scale,
                      scratch.delta + i);
  });
  add_products(p, packed.k_transposed, block, scratch.dp, scratch);
  add_key_grads(p, block, scratch.dp, scratch.query_rows, dk);
}

// Fetches what all blocks of keys need of a block of queries: both ways of packing, lse, and
// delta = dy . y, which is the sum of p * dp over the keys.
void fetch_queries(const Problem& p, const GradTensors& t, const Block& block, Scratch& scratch) {
  const MatrixView q = p.packed(t.qkv, block.b, block.query, p.q_col(block.head));
  const MatrixView dy = p.heads_of(t.dy, block.b, block.query, block.head);
  pack_right(*p.tensors, transposed(q), p.dim, block.queries, scratch.queries);
  pack_right(*p.tensors, transposed(dy), p.dim, block.queries, scratch.dy);
  pack_right(*p.computed, q, block.queries, p.dim, scratch.query_rows);
  pack_right(*p.computed, dy, block.queries, p.dim, scratch.dy_rows);
  const float* lse = t.lse + (block.b * p.heads + block.head) * p.time + block.query;
  std::copy(lse, lse + block.queries, scratch.top);
  for (int64_t i = 0; i < block.queries; ++i) {
    const int64_t row = block.b * p.time + block.query + i;
    const int64_t offset = row * p.heads * p.dim + block.head * p.dim;
    scratch.delta[i] = dot_rows(load(t.dy, offset, p.dim, scratch.row),
                                load(t.y, offset, p.dim, scratch.row + kMaxHeadDim), p.dim);
  }
}

void pack_keys_and_values(const Problem& p, const GradTensors& t, const PackedHead& packed,
                          int64_t b, int64_t kv_head) {
  for_key_blocks(p, [&](int64_t key, int64_t keys, int64_t offset) {
    const MatrixView k = p.packed(t.qkv, b, key, p.k_col(kv_head));
    const MatrixView v = p.packed(t.qkv, b, key, p.v_col(kv_head));
    pack_left(*p.tensors, k, keys, p.dim, packed.k + offset);
    pack_left(*p.tensors, v, keys, p.dim, packed.v + offset);
    pack_left(*p.computed, transposed(k), p.dim, keys, packed.k_transposed + offset);
  });
}

// All gradients of one key head and of the query heads that read it.
void key_head_grad(const Problem& p, const GradTensors& t, const PackedHead& packed, int64_t b,
                   int64_t kv_head, Scratch& scratch) {
  pack_keys_and_values(p, t, packed, b, kv_head);
  for (int64_t time = 0; time < p.time; ++time) {
    float* row = t.dqkv + (b * p.time + time) * p.width();
    for (float* part : {row + p.k_col(kv_head), row + p.v_col(kv_head)}) {
      std::fill(part, part + p.dim, 0.0f);
    }
  }
  for (int64_t head = kv_head * p.group(); head < (kv_head + 1) * p.group(); ++head) {
    for (int64_t query = 0; query < p.time; query += kQueries) {
      Block block{.b = b, .head = head, .query = query};
      block.queries = std::min(kQueries, p.time - query);
      fetch_queries(p, t, block, scratch);
      std::fill(scratch.sum, scratch.sum + p.dim * kTileStride, 0.0f);
      begin_keys(p, block, scratch);
      for (; block.key < query + block.queries; block.key += kKeys) {
        block.keys = std::min(kKeys, query + block.queries - block.key);
        attend_grad(p, t, packed, block, scratch);
      }
      float* dq = t.dqkv + (b * p.time + query) * p.width() + p.q_col(head);
      for_sum_rows(p, block, scratch, [&](int64_t i, int64_t col, int64_t n, const float* values) {
        std::copy(values, values + n, dq + i * p.width() + col);
      });
    }
  }
}

void backward(const Launch& launch, const Problem& p) {
  const Tensor& dqkv = launch.results.at(0);
  constexpr int64_t kFactors = 3;
  float* widened = static_cast<float*>(launch.workspace) +
                   PackedHead::floats(p.time, p.dim, kFactors) * p.batch * p.kv_heads;
  const GradTensors tensors{launch.operands.at(0), launch.operands.at(1), launch.operands.at(2),
                            launch.operands.at(3).as<float>(), place(dqkv, 0, widened)};
  team(launch).run(p.batch * p.kv_heads, [&](int64_t tile, float* memory) {
    key_head_grad(p, tensors, PackedHead(launch.workspace, tile, p, kFactors), tile / p.kv_heads,
                  tile % p.kv_heads, *reinterpret_cast<Scratch*>(memory));
  });
  const int64_t rows = p.batch * p.time;
  if (dqkv.dtype == DType::F32) return;
  team(launch).run(rows, [&](int64_t row) {
    store(dqkv, row * p.width(), p.width(), tensors.dqkv + row * p.width());
  });
}

void launch_attention(const Launch& launch) {
  forward(launch, problem_of(launch, {.qkv = 0, .rng = 1}));
}
void launch_attention_grad(const Launch& launch) {
  backward(launch, problem_of(launch, {.qkv = 1, .rng = 4}));
}
void launch_document_attention(const Launch& launch) {
  forward(launch, problem_of(launch, {.qkv = 0, .rng = 2, .positions = 1}));
}
void launch_document_attention_grad(const Launch& launch) {
  backward(launch, problem_of(launch, {.qkv = 1, .rng = 5, .positions = 4}));
}

// Bytes of the packed heads.
int64_t packed_bytes(const Call& call, size_t qkv, int64_t factors) {
  const Shape& shape = call.type(qkv).shape;
  const int64_t kv_heads = call.int_attr("kv_heads");
  const int64_t dim = shape[2] / (call.int_attr("heads") + 2 * kv_heads);
  return shape[0] * kv_heads * PackedHead::floats(shape[1], dim, factors) *
         static_cast<int64_t>(sizeof(float));
}

int64_t attention_workspace(const Call& call) {
  return packed_bytes(call, 0, 2);
}

int64_t attention_grad_workspace(const Call& call) {
  const TensorType& dqkv = call.results.at(0);
  const int64_t widened =
      dqkv.dtype == DType::F32 ? 0 : dqkv.elements() * static_cast<int64_t>(sizeof(float));
  return packed_bytes(call, 1, 3) + widened;
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

Decision supports_attention(const Call& call) {
  return supports_at(call, 0);
}
Decision supports_attention_grad(const Call& call) {
  return supports_at(call, 1);
}

}  // namespace

std::span<const Kernel> cpu_attention_kernels() {
  static const Kernel rows[] = {
      {"attention", "blocks", supports_attention, attention_workspace, launch_attention},
      {"attention_grad", "blocks", supports_attention_grad, attention_grad_workspace,
       launch_attention_grad},
      {"document_attention", "blocks", supports_attention, attention_workspace,
       launch_document_attention},
      {"document_attention_grad", "blocks", supports_attention_grad, attention_grad_workspace,
       launch_document_attention_grad},
  };
  return rows;
}

}  // namespace weft

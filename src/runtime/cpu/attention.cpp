// Causal attention over packed q | k | v, block by block of queries and keys, so that scores never
// leave a thread's scratch memory. Keys and values are packed for the matrix products once, into
// the workspace. The forward keeps a running maximum and sum for each query; the backward makes the
// probabilities again from the saved lse. Forward tiles are blocks of queries of one head; backward
// tiles are key heads with all the query heads that read them, so that nothing is summed across
// threads.
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

constexpr int64_t kQueries = 48;  // in a block
constexpr int64_t kKeys = 96;     // in a block
constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kPanel = kGemmPadding;
constexpr int64_t kMaxPadded = kMaxHeadDim + kPanel;
static_assert(kKeys % kPanel == 0 && kKeys <= kGemmDepth && kMaxHeadDim <= kGemmDepth);

// One thread's scratch memory. Names of packed factors say which side of a product they are for.
struct Scratch {
  float left_q[(kQueries + kPanel) * kMaxHeadDim];
  float left_dy[(kQueries + kPanel) * kMaxHeadDim];
  float right_q[kQueries * kMaxPadded];
  float right_dy[kQueries * kMaxPadded];
  float left[(kKeys + kPanel) * kKeys];  // of probabilities or score gradients
  float p[kQueries * kKeys];
  float dp[kQueries * kKeys];
  float sum[kQueries * kMaxHeadDim];
  float top[kQueries];
  float total[kQueries];
  float delta[kQueries];
  float row[2 * kMaxHeadDim];
};
static_assert(sizeof(Scratch) <= ThreadTeam::kScratchFloats * sizeof(float));

struct Problem {
  int64_t batch = 0, time = 0, heads = 0, kv_heads = 0, dim = 0;
  float scale = 1;
  bool drop = false;
  Dropout dropout;

  // For products of two tensors, and for those with what a thread computed.
  const GemmVariant* tensors = nullptr;
  const GemmVariant* computed = nullptr;

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

Problem problem_of(const Launch& launch, size_t qkv, size_t rng) {
  const Call& call = *launch.call;
  const Shape& shape = launch.operands.at(qkv).shape;
  Problem p;
  p.batch = shape[0];
  p.time = shape[1];
  p.heads = call.int_attr("heads");
  p.kv_heads = call.int_attr("kv_heads");
  p.dim = shape[2] / (p.heads + 2 * p.kv_heads);
  const DType dtype = launch.operands.at(qkv).dtype;
  p.tensors = &gemm_variant(dtype, dtype);
  p.computed = &gemm_variant(DType::F32, dtype);
  p.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.dim)));
  const double rate = call.double_attr("dropout");
  p.drop = rate > 0;
  if (p.drop) p.dropout = make_dropout(launch.operands.at(rng), call.int_attr("stream"), rate);
  return p;
}

// A block of queries of one head against a block of keys.
struct Block {
  int64_t b = 0, head = 0;
  int64_t query = 0, queries = 0;
  int64_t key = 0, keys = 0;

  // Keys that query `i` of the block may see.
  int64_t visible(int64_t i) const { return std::clamp<int64_t>(query + i + 1 - key, 0, keys); }
};

WEFT_CLONES void scale_row(float factor, int64_t n, float* row) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) row[i] *= factor;
}

WEFT_CLONES float max_row(const float* row, int64_t n) {
  return lane_max(row, n);
}

// row = exp(row * scale - shift) up to n, zero from there to `whole`.
WEFT_CLONES void exp_row(float scale, float shift, int64_t n, int64_t whole, float* row) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) row[i] = exp_f32(row[i] * scale - shift);
  for (int64_t i = n; i < whole; ++i) row[i] = 0;
}

WEFT_CLONES float sum_row(const float* row, int64_t n) {
  return lane_sum(
      n, [&](int64_t i) { return lanes_at(row + i); }, [&](int64_t i) { return row[i]; });
}

WEFT_CLONES float dot_row(const float* a, const float* b, int64_t n) {
  return lane_sum(
      n, [&](int64_t i) { return lanes_at(a + i) * lanes_at(b + i); },
      [&](int64_t i) { return a[i] * b[i]; });
}

// ds = p * (dp - delta) * scale.
WEFT_CLONES void score_grad_row(const float* p, float delta, float scale, int64_t n, float* dp) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) dp[i] = p[i] * (dp[i] - delta) * scale;
}

// Drops elements of a row of the block's probabilities, or of their gradient.
void drop_row(const Problem& p, const Block& block, int64_t i, const float* from_row, float* to) {
  const int64_t sample = p.dropout.first_sample + block.b;
  const int64_t query = (sample * p.heads + block.head) * p.time + block.query + i;
  apply_dropout(p.dropout, static_cast<uint64_t>(query * p.time + block.key), block.keys, from_row,
                to);
}

// The keys and values of one key head, packed in blocks of kKeys as right factors.
struct PackedHead {
  float* k_transposed = nullptr;  // dim x keys
  float* v = nullptr;             // keys x dim; transposed in the backward
  float* k = nullptr;             // keys x dim; in the backward

  static int64_t block_floats(int64_t dim) { return kKeys * (ceil_div(dim, kPanel) * kPanel); }
  static int64_t floats(int64_t time, int64_t dim, int64_t factors) {
    return ceil_div(time, kKeys) * block_floats(dim) * factors;
  }
  // Part `index` of a workspace that holds heads of so many factors.
  PackedHead(void* workspace, int64_t index, const Problem& p, int64_t factors) {
    const int64_t each = floats(p.time, p.dim, 1);
    k_transposed = static_cast<float*>(workspace) + index * factors * each;
    v = k_transposed + each;
    k = v + each;
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

// A thread's matrix as a left factor, or as that factor's transpose.
void pack_computed(const Problem& p, const Block& block, const float* values, Scratch& scratch) {
  pack_left(*p.computed, matrix(values, DType::F32, kKeys), block.queries, block.keys,
            scratch.left);
}
void pack_computed_transposed(const Problem& p, const Block& block, const float* values,
                              Scratch& scratch) {
  pack_left(*p.computed, transposed(matrix(values, DType::F32, kKeys)), block.keys, block.queries,
            scratch.left);
}

// scratch.p = q k^T, not yet scaled, from the packed queries.
void scores(const Problem& p, const PackedHead& packed, const Block& block, Scratch& scratch) {
  const int64_t lane = packed_depth(*p.tensors, p.dim);
  multiply_packed(*p.tensors, {block.queries, block.keys, p.dim}, {scratch.left_q, lane},
                  {packed.k_transposed + PackedHead::offset(block.key, p.dim), lane}, scratch.p,
                  kKeys, GemmMode::Store);
}

// Takes one block of keys into the running maximum, sum and weighted values.
void attend(const Problem& p, const PackedHead& packed, const Block& block, Scratch& scratch) {
  scores(p, packed, block, scratch);
  for (int64_t i = 0; i < block.queries; ++i) {
    float* row = scratch.p + i * kKeys;
    const int64_t visible = block.visible(i);
    const float top = std::max(scratch.top[i], max_row(row, visible) * p.scale);
    exp_row(p.scale, top, visible, block.keys, row);
    const float shrink = exp_f32(scratch.top[i] - top);
    scratch.top[i] = top;
    scratch.total[i] = scratch.total[i] * shrink + sum_row(row, visible);
    if (shrink != 1.0f) scale_row(shrink, p.dim, scratch.sum + i * p.dim);
    if (p.drop) drop_row(p, block, i, row, row);
  }
  pack_computed(p, block, scratch.p, scratch);
  const int64_t block_keys = std::min(kKeys, p.time - block.key);
  multiply_packed(*p.computed, {block.queries, p.dim, block.keys}, {scratch.left, block.keys},
                  {packed.v + PackedHead::offset(block.key, p.dim), block_keys}, scratch.sum, p.dim,
                  GemmMode::Add);
}

void launch_attention(const Launch& launch) {
  const Problem p = problem_of(launch, 0, 1);
  const Tensor& qkv = launch.operands[0];
  const Tensor& y = launch.results.at(0);
  float* lse = launch.results.at(1).as<float>();
  constexpr int64_t kFactors = 2;
  team(launch).run(p.batch * p.kv_heads, [&](int64_t tile) {
    const PackedHead packed(launch.workspace, tile, p, kFactors);
    const int64_t b = tile / p.kv_heads, kv_head = tile % p.kv_heads;
    for_key_blocks(p, [&](int64_t key, int64_t keys, int64_t offset) {
      pack_right(*p.tensors, transposed(p.packed(qkv, b, key, p.k_col(kv_head))), p.dim, keys,
                 packed.k_transposed + offset);
      pack_right(*p.computed, p.packed(qkv, b, key, p.v_col(kv_head)), keys, p.dim,
                 packed.v + offset);
    });
  });
  const int64_t blocks = ceil_div(p.time, kQueries);
  team(launch).run(p.batch * p.heads * blocks, [&](int64_t tile, float* memory) {
    Scratch& scratch = *reinterpret_cast<Scratch*>(memory);
    // The last block of queries has the most keys: first, so that the threads end together.
    Block block{.b = tile / blocks / p.heads,
                .head = tile / blocks % p.heads,
                .query = (blocks - 1 - tile % blocks) * kQueries};
    block.queries = std::min(kQueries, p.time - block.query);
    const PackedHead packed(launch.workspace, block.b * p.kv_heads + block.head / p.group(), p,
                            kFactors);
    pack_left(*p.tensors, p.packed(qkv, block.b, block.query, p.q_col(block.head)), block.queries,
              p.dim, scratch.left_q);
    std::fill(scratch.top, scratch.top + kQueries, -std::numeric_limits<float>::infinity());
    std::fill(scratch.total, scratch.total + kQueries, 0.0f);
    std::fill(scratch.sum, scratch.sum + block.queries * p.dim, 0.0f);
    for (; block.key < block.query + block.queries; block.key += kKeys) {
      block.keys = std::min(kKeys, block.query + block.queries - block.key);
      attend(p, packed, block, scratch);
    }
    for (int64_t i = 0; i < block.queries; ++i) {
      const int64_t t = block.query + i;
      const int64_t offset = (block.b * p.time + t) * p.heads * p.dim + block.head * p.dim;
      float* row = scratch.sum + i * p.dim;
      scale_row(1.0f / scratch.total[i], p.dim, row);
      float* to = place(y, offset, row);
      if (to != row) std::copy(row, row + p.dim, to);
      store(y, offset, p.dim, row);
      lse[(block.b * p.heads + block.head) * p.time + t] =
          scratch.top[i] + std::log(scratch.total[i]);
    }
  });
}

struct GradTensors {
  const Tensor& dy;
  const Tensor& qkv;
  const Tensor& y;
  const float* lse;
  float* dqkv;  // f32, shaped as qkv, zero at the start
};

// Adds what one block of scores gives to the gradients of its queries, keys and values.
void attend_grad(const Problem& p, const GradTensors& t, const PackedHead& packed,
                 const Block& block, Scratch& scratch) {
  const int64_t kv_head = block.head / p.group();
  const int64_t width = p.width();
  float* dq = t.dqkv + (block.b * p.time + block.query) * width + p.q_col(block.head);
  float* dk = t.dqkv + (block.b * p.time + block.key) * width + p.k_col(kv_head);
  float* dv = t.dqkv + (block.b * p.time + block.key) * width + p.v_col(kv_head);
  const int64_t offset = PackedHead::offset(block.key, p.dim);
  const int64_t lane = packed_depth(*p.tensors, p.dim);
  const GemmShape over_queries{block.keys, p.dim, block.queries};

  scores(p, packed, block, scratch);
  const float* lse = t.lse + (block.b * p.heads + block.head) * p.time + block.query;
  for (int64_t i = 0; i < block.queries; ++i) {
    float* row = scratch.p + i * kKeys;
    exp_row(p.scale, lse[i], block.visible(i), block.keys, row);
    // The values saw dropped probabilities; they stand in dp until dp itself is made.
    if (p.drop) drop_row(p, block, i, row, scratch.dp + i * kKeys);
  }
  pack_computed_transposed(p, block, p.drop ? scratch.dp : scratch.p, scratch);
  multiply_packed(*p.computed, over_queries, {scratch.left, block.queries},
                  {scratch.right_dy, block.queries}, dv, width, GemmMode::Add);
  multiply_packed(*p.tensors, {block.queries, block.keys, p.dim}, {scratch.left_dy, lane},
                  {packed.v + offset, lane}, scratch.dp, kKeys, GemmMode::Store);
  for (int64_t i = 0; i < block.queries; ++i) {
    float* row = scratch.dp + i * kKeys;
    if (p.drop) drop_row(p, block, i, row, row);
    score_grad_row(scratch.p + i * kKeys, scratch.delta[i], p.scale, block.keys, row);
  }
  pack_computed(p, block, scratch.dp, scratch);
  const int64_t block_keys = std::min(kKeys, p.time - block.key);
  multiply_packed(*p.computed, {block.queries, p.dim, block.keys}, {scratch.left, block.keys},
                  {packed.k + offset, block_keys}, dq, width, GemmMode::Add);
  pack_computed_transposed(p, block, scratch.dp, scratch);
  multiply_packed(*p.computed, over_queries, {scratch.left, block.queries},
                  {scratch.right_q, block.queries}, dk, width, GemmMode::Add);
}

// Packs what all blocks of keys need of a block of queries.
void pack_queries(const Problem& p, const GradTensors& t, const Block& block, Scratch& scratch) {
  const MatrixView q = p.packed(t.qkv, block.b, block.query, p.q_col(block.head));
  const MatrixView dy = p.heads_of(t.dy, block.b, block.query, block.head);
  pack_left(*p.tensors, q, block.queries, p.dim, scratch.left_q);
  pack_left(*p.tensors, dy, block.queries, p.dim, scratch.left_dy);
  pack_right(*p.computed, q, block.queries, p.dim, scratch.right_q);
  pack_right(*p.computed, dy, block.queries, p.dim, scratch.right_dy);
}

// delta = dy . y for each query of the block, which is the sum of p * dp over its keys.
void fill_delta(const Problem& p, const GradTensors& t, const Block& block, Scratch& scratch) {
  for (int64_t i = 0; i < block.queries; ++i) {
    const int64_t row = block.b * p.time + block.query + i;
    const int64_t offset = row * p.heads * p.dim + block.head * p.dim;
    scratch.delta[i] = dot_row(load(t.dy, offset, p.dim, scratch.row),
                               load(t.y, offset, p.dim, scratch.row + kMaxHeadDim), p.dim);
  }
}

// All gradients of one key head and of the query heads that read it.
void key_head_grad(const Problem& p, const GradTensors& t, const PackedHead& packed, int64_t b,
                   int64_t kv_head, Scratch& scratch) {
  for_key_blocks(p, [&](int64_t key, int64_t keys, int64_t offset) {
    const MatrixView k = p.packed(t.qkv, b, key, p.k_col(kv_head));
    const MatrixView v = p.packed(t.qkv, b, key, p.v_col(kv_head));
    pack_right(*p.tensors, transposed(k), p.dim, keys, packed.k_transposed + offset);
    pack_right(*p.tensors, transposed(v), p.dim, keys, packed.v + offset);
    pack_right(*p.computed, k, keys, p.dim, packed.k + offset);
  });
  for (int64_t time = 0; time < p.time; ++time) {
    float* row = t.dqkv + (b * p.time + time) * p.width();
    const auto clear = [&](int64_t col, int64_t n) { std::fill(row + col, row + col + n, 0.0f); };
    clear(p.q_col(kv_head * p.group()), p.group() * p.dim);
    clear(p.k_col(kv_head), p.dim);
    clear(p.v_col(kv_head), p.dim);
  }
  for (int64_t head = kv_head * p.group(); head < (kv_head + 1) * p.group(); ++head) {
    for (int64_t query = 0; query < p.time; query += kQueries) {
      Block block{.b = b, .head = head, .query = query};
      block.queries = std::min(kQueries, p.time - query);
      fill_delta(p, t, block, scratch);
      pack_queries(p, t, block, scratch);
      for (; block.key < query + block.queries; block.key += kKeys) {
        block.keys = std::min(kKeys, query + block.queries - block.key);
        attend_grad(p, t, packed, block, scratch);
      }
    }
  }
}

void launch_attention_grad(const Launch& launch) {
  const Problem p = problem_of(launch, 1, 4);
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

Decision supports_attention_at(const Call& call, size_t qkv) {
  Decision decision = supports_cpu_dtypes(call);
  const int64_t parts = call.int_attr("heads") + 2 * call.int_attr("kv_heads");
  const int64_t dim = call.type(qkv).shape.at(2) / parts;
  if (decision.allowed && dim > kMaxHeadDim) {
    return Decision::no(cat("takes heads of up to ", kMaxHeadDim, " dims, found ", dim));
  }
  return decision;
}

}  // namespace

std::span<const Kernel> cpu_attention_kernels() {
  static const Kernel rows[] = {
      {"attention", "blocks", [](const Call& call) { return supports_attention_at(call, 0); },
       attention_workspace, launch_attention},
      {"attention_grad", "blocks", [](const Call& call) { return supports_attention_at(call, 1); },
       attention_grad_workspace, launch_attention_grad},
  };
  return rows;
}

}  // namespace weft

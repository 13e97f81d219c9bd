// Causal attention over packed q | k | v, block by block of queries and keys, so that scores never
// leave a thread's scratch memory. The forward keeps a running maximum and sum for each query; the
// backward makes the probabilities again from the saved lse. Forward tiles are blocks of queries of
// one head; backward tiles are key heads with all the query heads that read them, so that nothing
// is summed across threads.
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
constexpr int64_t kGemmScratch = gemm_scratch_floats(kKeys, kMaxHeadDim);

// One thread's scratch memory.
struct Scratch {
  float gemm[kGemmScratch];
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

WEFT_CLONES float max_row(const float* row, int64_t n, float top) {
  for (int64_t i = 0; i < n; ++i) top = row[i] > top ? row[i] : top;
  return top;
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

// scratch.p = q k^T, not yet scaled.
void scores(const Problem& p, const Tensor& qkv, const Block& block, Scratch& scratch) {
  const int64_t kv_head = block.head / p.group();
  gemm({block.queries, block.keys, p.dim}, p.packed(qkv, block.b, block.query, p.q_col(block.head)),
       transposed(p.packed(qkv, block.b, block.key, p.k_col(kv_head))), scratch.p, kKeys,
       GemmMode::Store, scratch.gemm);
}

// Takes one block of keys into the running maximum, sum and weighted values.
void attend(const Problem& p, const Tensor& qkv, const Block& block, Scratch& scratch) {
  scores(p, qkv, block, scratch);
  for (int64_t i = 0; i < block.queries; ++i) {
    float* row = scratch.p + i * kKeys;
    const int64_t visible = block.visible(i);
    const float top = std::max(
        scratch.top[i], max_row(row, visible, -std::numeric_limits<float>::infinity()) * p.scale);
    exp_row(p.scale, top, visible, block.keys, row);
    const float shrink = exp_f32(scratch.top[i] - top);
    scratch.top[i] = top;
    scratch.total[i] = scratch.total[i] * shrink + sum_row(row, visible);
    scale_row(shrink, p.dim, scratch.sum + i * p.dim);
    if (p.drop) drop_row(p, block, i, row, row);
  }
  const int64_t kv_head = block.head / p.group();
  gemm({block.queries, p.dim, block.keys}, matrix(scratch.p, DType::F32, kKeys),
       p.packed(qkv, block.b, block.key, p.v_col(kv_head)), scratch.sum, p.dim, GemmMode::Add,
       scratch.gemm);
}

void launch_attention(const Launch& launch) {
  const Problem p = problem_of(launch, 0, 1);
  const Tensor& qkv = launch.operands[0];
  const Tensor& y = launch.results.at(0);
  float* lse = launch.results.at(1).as<float>();
  const int64_t blocks = ceil_div(p.time, kQueries);
  team(launch).run(p.batch * p.heads * blocks, [&](int64_t tile, float* memory) {
    Scratch& scratch = *reinterpret_cast<Scratch*>(memory);
    // The last block of queries has the most keys: first, so that the threads end together.
    Block block{.b = tile / blocks / p.heads,
                .head = tile / blocks % p.heads,
                .query = (blocks - 1 - tile % blocks) * kQueries};
    block.queries = std::min(kQueries, p.time - block.query);
    std::fill(scratch.top, scratch.top + kQueries, -std::numeric_limits<float>::infinity());
    std::fill(scratch.total, scratch.total + kQueries, 0.0f);
    std::fill(scratch.sum, scratch.sum + block.queries * p.dim, 0.0f);
    for (; block.key < block.query + block.queries; block.key += kKeys) {
      block.keys = std::min(kKeys, block.query + block.queries - block.key);
      attend(p, qkv, block, scratch);
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
void attend_grad(const Problem& p, const GradTensors& t, const Block& block, Scratch& scratch) {
  const int64_t kv_head = block.head / p.group();
  const int64_t width = p.width();
  float* dq = t.dqkv + (block.b * p.time + block.query) * width + p.q_col(block.head);
  float* dk = t.dqkv + (block.b * p.time + block.key) * width + p.k_col(kv_head);
  float* dv = t.dqkv + (block.b * p.time + block.key) * width + p.v_col(kv_head);
  const MatrixView dy = p.heads_of(t.dy, block.b, block.query, block.head);
  const MatrixView probabilities = matrix(scratch.p, DType::F32, kKeys);
  const MatrixView score_grads = matrix(scratch.dp, DType::F32, kKeys);

  scores(p, t.qkv, block, scratch);
  const float* lse = t.lse + (block.b * p.heads + block.head) * p.time + block.query;
  for (int64_t i = 0; i < block.queries; ++i) {
    float* row = scratch.p + i * kKeys;
    exp_row(p.scale, lse[i], block.visible(i), block.keys, row);
    // The values saw dropped probabilities; they stand in dp until dp itself is made.
    if (p.drop) drop_row(p, block, i, row, scratch.dp + i * kKeys);
  }
  gemm({block.keys, p.dim, block.queries}, transposed(p.drop ? score_grads : probabilities), dy, dv,
       width, GemmMode::Add, scratch.gemm);
  gemm({block.queries, block.keys, p.dim}, dy,
       transposed(p.packed(t.qkv, block.b, block.key, p.v_col(kv_head))), scratch.dp, kKeys,
       GemmMode::Store, scratch.gemm);
  for (int64_t i = 0; i < block.queries; ++i) {
    float* row = scratch.dp + i * kKeys;
    if (p.drop) drop_row(p, block, i, row, row);
    score_grad_row(scratch.p + i * kKeys, scratch.delta[i], p.scale, block.keys, row);
  }
  gemm({block.queries, p.dim, block.keys}, score_grads,
       p.packed(t.qkv, block.b, block.key, p.k_col(kv_head)), dq, width, GemmMode::Add,
       scratch.gemm);
  gemm({block.keys, p.dim, block.queries}, transposed(score_grads),
       p.packed(t.qkv, block.b, block.query, p.q_col(block.head)), dk, width, GemmMode::Add,
       scratch.gemm);
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
void key_head_grad(const Problem& p, const GradTensors& t, int64_t b, int64_t kv_head,
                   Scratch& scratch) {
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
      for (; block.key < query + block.queries; block.key += kKeys) {
        block.keys = std::min(kKeys, query + block.queries - block.key);
        attend_grad(p, t, block, scratch);
      }
    }
  }
}

void launch_attention_grad(const Launch& launch) {
  const Problem p = problem_of(launch, 1, 4);
  const Tensor& dqkv = launch.results.at(0);
  const GradTensors tensors{launch.operands.at(0), launch.operands.at(1), launch.operands.at(2),
                            launch.operands.at(3).as<float>(),
                            place(dqkv, 0, static_cast<float*>(launch.workspace))};
  team(launch).run(p.batch * p.kv_heads, [&](int64_t tile, float* memory) {
    key_head_grad(p, tensors, tile / p.kv_heads, tile % p.kv_heads,
                  *reinterpret_cast<Scratch*>(memory));
  });
  const int64_t rows = p.batch * p.time;
  if (dqkv.dtype == DType::F32) return;
  team(launch).run(rows, [&](int64_t row) {
    store(dqkv, row * p.width(), p.width(), tensors.dqkv + row * p.width());
  });
}

int64_t attention_grad_workspace(const Call& call) {
  const TensorType& dqkv = call.results.at(0);
  return dqkv.dtype == DType::F32 ? 0 : dqkv.elements() * static_cast<int64_t>(sizeof(float));
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
       nullptr, launch_attention},
      {"attention_grad", "blocks", [](const Call& call) { return supports_attention_at(call, 1); },
       attention_grad_workspace, launch_attention_grad},
  };
  return rows;
}

}  // namespace weft

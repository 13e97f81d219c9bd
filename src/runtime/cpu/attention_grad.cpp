// The gradient of attention, which recomputes the probabilities from the saved lse. Tasks are key
// heads with all the query heads that read them, so nothing is summed across threads.
#include "runtime/cpu/attention_blocks.h"

namespace weft {

using namespace attention;

namespace {

constexpr int64_t kFactors = 3;  // per packed head: k, v and k transposed

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

// Adds tile * rows, keys x queries times queries x dim, to the gradient of the keys or values. Rows
// that only the second group of queries sees are zero for the first.
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

struct GradTensors {
  const Tensor& dy;
  const Tensor& qkv;
  const Tensor& y;
  const float* lse;
  float* dqkv;  // f32, shaped like qkv
};

// Adds the contribution of one block of scores to the gradients of its keys and values, and to
// scratch.sum, the gradient of its queries.
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
    // The values were weighted by probabilities after dropout; these are kept in dp until dp is
    // computed.
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
  add_matmul(p, packed.k_transposed, block, scratch.dp, scratch);
  add_key_grads(p, block, scratch.dp, scratch.query_rows, dk);
}

// Fetches what all blocks of keys need from a block of queries: both packings, lse, and delta = dy
// . y, which is the sum of p * dp over the keys.
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

void launch_attention_grad(const Launch& launch) {
  backward(launch, problem_of(launch, {.qkv = 1, .rng = 4}));
}
void launch_document_attention_grad(const Launch& launch) {
  backward(launch, problem_of(launch, {.qkv = 1, .rng = 5, .positions = 4}));
}

int64_t workspace(const Call& call) {
  const TensorType& dqkv = call.results.at(0);
  const int64_t widened =
      dqkv.dtype == DType::F32 ? 0 : dqkv.elements() * static_cast<int64_t>(sizeof(float));
  return packed_bytes(call, 1, kFactors) + widened;
}

Decision supports(const Call& call) {
  return supports_at(call, 1);
}

}  // namespace

std::span<const Kernel> cpu_attention_grad_kernels() {
  static const Kernel rows[] = {
      {"attention_grad", "blocks", supports, workspace, launch_attention_grad},
      {"document_attention_grad", "blocks", supports, workspace, launch_document_attention_grad},
  };
  return rows;
}

}  // namespace weft

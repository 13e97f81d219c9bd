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
  // A query may see none of the keys of its block.
  const Lanes own = lanes_at(lse);
  const Lanes shift = own > Lanes{} - __builtin_inff() ? own : Lanes{};
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
void add_key_grads(const Problem& p, const Block& block, const float* tile, const HeadFactor& rows,
                   float* to) {
  const auto add = [&](int64_t key, int64_t keys, int64_t query) {
    multiply_left_tile(*p.computed, {keys, rows.dim, block.queries - query},
                       tile + key * kTileStride + query,
                       {rows.data + query * p.computed->panel_cols, block.queries},
                       to + key * p.kv_width, p.kv_width, GemmMode::Add);
  };
  const int64_t first = block.queries > kGroup ? block.visible(0, kGroup) : block.keys;
  add(0, first, 0);
  add(first, block.keys - first, kGroup);
}

struct GradTensors {
  const Tensor& dy;
  const Tensor& y;
  const float* lse;
  float* dq;   // f32, shaped like q
  float* dkv;  // f32, shaped like kv; of packed qkv both are the same
};

// Adds the contribution of one block of scores to the gradients of its keys and values, and to
// scratch.sum, the gradient of its queries.
void attend_grad(const Problem& p, const GradTensors& t, const PackedHead& packed,
                 const Block& block, Scratch& scratch) {
  const int64_t kv_head = block.head / p.heads.group();
  float* row = t.dkv + (block.b * p.keys + block.run.at + block.key) * p.kv_width;
  float* dk = row + p.k_col(kv_head);
  float* dv = row + p.v_col(kv_head);

  multiply_keys(p, {packed.k, p.heads.dim}, block, scratch.queries, scratch.p);
  for_columns(block, [&](int64_t i) {
    probability_column(Column(scratch.p, block, i), p.scale, scratch.top + i);
  });
  if (p.drop) {
    // The values were weighted by probabilities after dropout; these are kept in dp until dp is
    // computed.
    fill_kept(p, block, scratch);
    multiply_tiles(scratch.p, scratch.kept, block.keys, scratch.dp);
  }
  add_key_grads(p, block, p.drop ? scratch.dp : scratch.p, {scratch.dy_rows, p.heads.value_dim},
                dv);
  multiply_keys(p, {packed.v, p.heads.value_dim}, block, scratch.dy, scratch.dp);
  if (p.drop) multiply_tiles(scratch.dp, scratch.kept, block.keys, scratch.dp);
  for_columns(block, [&](int64_t i) {
    score_grad_column(Column(scratch.p, block, i), Column(scratch.dp, block, i), p.scale,
                      scratch.delta + i);
  });
  add_matmul(p, {packed.k_transposed, p.heads.dim}, block, scratch.dp, scratch);
  add_key_grads(p, block, scratch.dp, {scratch.query_rows, p.heads.dim}, dk);
}

// Fetches what all blocks of keys need from a block of queries: both packings, lse, and delta = dy
// . y, which is the sum of p * dp over the keys.
void fetch_queries(const Problem& p, const GradTensors& t, const Block& block, Scratch& scratch) {
  const MatrixView q = p.q_from(block.b, block.query, block.head);
  const MatrixView dy = p.heads_of(t.dy, block.b, block.query, block.head);
  pack_right(*p.tensors, transposed(q), p.heads.dim, block.queries, scratch.queries);
  pack_right(*p.tensors, transposed(dy), p.heads.value_dim, block.queries, scratch.dy);
  pack_right(*p.computed, q, block.queries, p.heads.dim, scratch.query_rows);
  pack_right(*p.computed, dy, block.queries, p.heads.value_dim, scratch.dy_rows);
  const float* lse = t.lse + (block.b * p.heads.q + block.head) * p.queries + block.query;
  std::copy(lse, lse + block.queries, scratch.top);
  for (int64_t i = 0; i < block.queries; ++i) {
    const int64_t row = block.b * p.queries + block.query + i;
    const int64_t dim = p.heads.value_dim;
    const int64_t offset = row * p.heads.y_width() + block.head * dim;
    scratch.delta[i] = dot_rows(load(t.dy, offset, dim, scratch.row),
                                load(t.y, offset, dim, scratch.row + kMaxHeadDim), dim);
  }
}

void pack_keys_and_values(const Problem& p, const PackedHead& packed, int64_t b, int64_t kv_head) {
  for_key_blocks(p, [&](int64_t key, int64_t keys, int64_t offset) {
    const MatrixView k = p.k_from(b, key, kv_head);
    const MatrixView v = p.v_from(b, key, kv_head);
    pack_left(*p.tensors, k, keys, p.heads.dim, packed.k + offset);
    pack_left(*p.tensors, v, keys, p.heads.value_dim, packed.v + offset);
    pack_left(*p.computed, transposed(k), p.heads.dim, keys, packed.k_transposed + offset);
  });
}

// All gradients of one key head and of the query heads that read it.
void key_head_grad(const Problem& p, const GradTensors& t, const PackedHead& packed, int64_t b,
                   int64_t kv_head, Scratch& scratch) {
  pack_keys_and_values(p, packed, b, kv_head);
  for (int64_t key = 0; key < p.keys; ++key) {
    float* row = t.dkv + (b * p.keys + key) * p.kv_width;
    std::fill_n(row + p.k_col(kv_head), p.heads.dim, 0.0f);
    std::fill_n(row + p.v_col(kv_head), p.heads.value_dim, 0.0f);
  }
  for (int64_t head = kv_head * p.heads.group(); head < (kv_head + 1) * p.heads.group(); ++head) {
    for (int64_t index = 0; index < query_blocks(p); ++index) {
      const Block block = query_block(p, b, head, index);
      fetch_queries(p, t, block, scratch);
      std::fill(scratch.sum, scratch.sum + p.heads.dim * kTileStride, 0.0f);
      for_seen_keys(p, block, scratch,
                    [&](const Block& seen) { attend_grad(p, t, packed, seen, scratch); });
      float* dq = t.dq + (b * p.queries + block.query) * p.q_width + p.q_col(head);
      for_sum_rows(p, p.heads.dim, block, scratch,
                   [&](int64_t i, int64_t col, int64_t n, const float* values) {
                     std::copy(values, values + n, dq + i * p.q_width + col);
                   });
    }
  }
}

void store_rows(const Launch& launch, const Tensor& tensor, const float* values) {
  if (tensor.dtype == DType::F32) return;  // they are the tensor
  const int64_t width = row_length(tensor);
  team(launch).run(row_count(tensor),
                   [&](int64_t row) { store(tensor, row * width, width, values + row * width); });
}

void backward(const Launch& launch, const Problem& p, const Places& places) {
  float* widened = static_cast<float*>(launch.workspace) +
                   PackedHead::floats(p, kFactors) * p.batch * p.heads.kv;
  const Tensor& dq = launch.results.front();
  const Tensor& dkv = launch.results.back();
  float* dq_values = place(dq, 0, widened);
  float* dkv_values =
      launch.results.size() == 1 ? dq_values : place(dkv, 0, widened + dq.elements());
  const GradTensors tensors{launch.operands.at(0), launch.operands.at(places.kv + 1),
                            launch.operands.at(places.kv + 2).as<float>(), dq_values, dkv_values};
  team(launch).run(p.batch * p.heads.kv, [&](int64_t tile, float* memory) {
    key_head_grad(p, tensors, PackedHead(launch.workspace, tile, p, kFactors), tile / p.heads.kv,
                  tile % p.heads.kv, *reinterpret_cast<Scratch*>(memory));
  });
  store_rows(launch, dq, dq_values);
  if (launch.results.size() > 1) store_rows(launch, dkv, dkv_values);
}

template <const Places& kPlaces>
void launch_attention_grad(const Launch& launch) {
  backward(launch, problem_of(launch, kPlaces), kPlaces);
}

template <const Places& kPlaces>
int64_t workspace(const Call& call) {
  int64_t widened = 0;
  for (const TensorType& result : call.results) {
    if (result.dtype != DType::F32) widened += result.elements();
  }
  return packed_bytes(call, kPlaces, kFactors) + widened * static_cast<int64_t>(sizeof(float));
}

template <const Places& kPlaces>
Decision supports(const Call& call) {
  return supports_at(call, kPlaces);
}

template <const Places& kPlaces>
Kernel row(std::string_view op) {
  return {op, "blocks", supports<kPlaces>, workspace<kPlaces>, launch_attention_grad<kPlaces>};
}

}  // namespace

std::span<const Kernel> cpu_attention_grad_kernels() {
  static const Kernel rows[] = {
      row<kPackedGrad>("attention_grad"),
      row<kPackedDocumentsGrad>("document_attention_grad"),
      row<kContextGrad>("context_attention_grad"),
  };
  return rows;
}

}  // namespace weft

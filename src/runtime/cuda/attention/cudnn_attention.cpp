// The two graphs. cuDNN recognises them by pattern, so operations and layouts of the intermediate
// tensors are those that it documents for attention.
#include "runtime/cuda/attention/cudnn_attention.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "runtime/cuda/device/stream.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

// The tensors of a graph that are bound to memory; those of the other direction stay 0.
struct AttentionTensors {
  TensorId q = 0, k = 0, v = 0, y = 0, lse = 0;
  TensorId dy = 0, dq = 0, dk = 0, dv = 0, delta = 0;
};

Axes swapped(Axes axes) {
  std::swap(axes[2], axes[3]);
  return axes;
}

// Shapes and strides of one plan, and the operations that both directions share.
class AttentionGraph {
 public:
  AttentionGraph(const Cudnn& cudnn, const AttentionKey& key)
      : graph(cudnn),
        half(key.dtype == DType::BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF),
        b_(key.batch),
        h_(key.kv_heads * key.group),
        g_(key.kv_heads),
        t_(key.length),
        d_(key.head_dim),
        pairs{b_, h_, t_, t_},
        pair_strides{h_ * t_ * t_, t_ * t_, t_, 1},
        rows{b_, h_, t_, 1},
        row_strides{key.heads * t_, t_, 1, 1},
        query{b_, h_, t_, d_},
        keys{b_, g_, t_, d_},
        packed{t_ * key.width, d_, key.width, 1},
        result{t_ * key.heads * d_, d_, key.heads * d_, 1} {}

  TensorId between_pairs(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return graph.between(type, pairs, pair_strides);
  }

  TensorId pointwise(cudnnPointwiseMode_t mode, TensorId x, TensorId other) {
    const TensorId y = between_pairs();
    const TensorId operands[] = {x, other};
    graph.pointwise(mode, operands, y);
    return y;
  }

  TensorId exponential(TensorId x) {
    const TensorId y = between_pairs();
    graph.pointwise(CUDNN_POINTWISE_EXP, std::span(&x, 1), y);
    return y;
  }

  // scale q k^T
  TensorId scores(TensorId q, TensorId k) {
    const TensorId scores = between_pairs();
    graph.matmul(q, k, scores);
    return pointwise(CUDNN_POINTWISE_MUL, scores, scale());
  }

  // Minus infinity where the key comes after the query.
  TensorId causal(TensorId x) {
    const TensorId row = between_pairs(CUDNN_DATA_INT32);
    const TensorId column = between_pairs(CUDNN_DATA_INT32);
    graph.index(x, 2, row);
    graph.index(x, 3, column);
    const TensorId visible = between_pairs(CUDNN_DATA_BOOLEAN);
    const TensorId compared[] = {row, column};
    graph.pointwise(CUDNN_POINTWISE_CMP_GE, compared, visible, CUDNN_DATA_BOOLEAN);
    const TensorId hidden = graph.scalar(-std::numeric_limits<float>::infinity());
    const TensorId y = between_pairs();
    const TensorId choice[] = {x, hidden, visible};
    graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, choice, y);
    return y;
  }

  TensorId scale() {
    if (scale_ == 0) scale_ = graph.scalar(1.0f / std::sqrt(static_cast<float>(d_)));
    return scale_;
  }

  TensorId transposed(TensorId x) {
    const TensorId y = graph.between(half, swapped(pairs), swapped(pair_strides));
    graph.view(x, y);
    return y;
  }

  // c = a^T b for every query head, summed over the heads that share a key.
  void transposed_matmul(TensorId a, TensorId b, TensorId c) {
    if (h_ == g_) {
      graph.matmul(transposed(a), b, c);
      return;
    }
    const TensorId full = graph.between(half, query, {h_ * t_ * d_, t_ * d_, d_, 1});
    graph.matmul(transposed(a), b, full);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, full, c);
  }

  CudnnGraph graph;
  cudnnDataType_t half;

 private:
  int64_t b_, h_, g_, t_, d_;
  TensorId scale_ = 0;

 public:
  Axes pairs, pair_strides;
  Axes rows, row_strides;
  Axes query, keys;
  Axes packed, result;
};

void build_forward(AttentionGraph& a, AttentionTensors& t) {
  CudnnGraph& graph = a.graph;
  t.q = graph.bound(a.half, a.query, a.packed);
  t.k = graph.bound(a.half, swapped(a.keys), swapped(a.packed));
  t.v = graph.bound(a.half, a.keys, a.packed);
  const TensorId s = a.causal(a.scores(t.q, t.k));

  const auto row = [&] { return graph.between(CUDNN_DATA_FLOAT, a.rows, a.row_strides); };
  const TensorId maximum = row();
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, s, maximum);
  const TensorId p = a.exponential(a.pointwise(CUDNN_POINTWISE_SUB, s, maximum));
  const TensorId sum = row();
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, p, sum);
  const TensorId log = row();
  graph.pointwise(CUDNN_POINTWISE_LOG, std::span(&sum, 1), log);
  t.lse = graph.bound(CUDNN_DATA_FLOAT, a.rows, a.row_strides);
  const TensorId added[] = {maximum, log};
  graph.pointwise(CUDNN_POINTWISE_ADD, added, t.lse);
  const TensorId probability = a.between_pairs(a.half);
  const TensorId divided[] = {p, sum};
  graph.pointwise(CUDNN_POINTWISE_DIV, divided, probability);
  t.y = graph.bound(a.half, a.query, a.result);
  graph.matmul(probability, t.v, t.y);
}

// delta = rowsum(dy y), p = exp(s - lse), ds = scale p (dy v^T - delta);
// dv = p^T dy, dk = ds^T q, dq = ds k.
void build_backward(AttentionGraph& a, AttentionTensors& t) {
  CudnnGraph& graph = a.graph;
  t.q = graph.bound(a.half, a.query, a.packed);
  t.k = graph.bound(a.half, swapped(a.keys), swapped(a.packed));
  t.v = graph.bound(a.half, swapped(a.keys), swapped(a.packed));
  t.y = graph.bound(a.half, a.query, a.result);
  t.dy = graph.bound(a.half, a.query, a.result);
  t.lse = graph.bound(CUDNN_DATA_FLOAT, a.rows, a.row_strides);

  const TensorId scores = graph.between(CUDNN_DATA_FLOAT, a.query, a.result);
  const TensorId factors[] = {t.dy, t.y};
  graph.pointwise(CUDNN_POINTWISE_MUL, factors, scores);
  const Axes plain_rows = {a.rows[1] * a.rows[2], a.rows[2], 1, 1};
  const TensorId sum = graph.between(CUDNN_DATA_FLOAT, a.rows, plain_rows);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, scores, sum);
  t.delta = graph.bound(CUDNN_DATA_FLOAT, a.rows, plain_rows);
  const TensorId kept[] = {sum, graph.scalar(1.0f)};
  graph.pointwise(CUDNN_POINTWISE_MUL, kept, t.delta);

  const TensorId s = a.pointwise(CUDNN_POINTWISE_SUB, a.scores(t.q, t.k), t.lse);
  const TensorId p = a.exponential(a.causal(s));
  t.dv = graph.bound(a.half, a.keys, a.packed);
  a.transposed_matmul(p, t.dy, t.dv);

  const TensorId dp = a.between_pairs();
  graph.matmul(t.dy, t.v, dp);
  TensorId ds = a.pointwise(CUDNN_POINTWISE_SUB, dp, t.delta);
  ds = a.pointwise(CUDNN_POINTWISE_MUL, ds, p);
  ds = a.pointwise(CUDNN_POINTWISE_MUL, ds, a.scale());
  t.dk = graph.bound(a.half, a.keys, a.packed);
  a.transposed_matmul(ds, t.q, t.dk);
  const TensorId k = graph.between(a.half, a.keys, a.packed);
  graph.view(t.k, k);
  t.dq = graph.bound(a.half, a.query, a.packed);
  graph.matmul(ds, k, t.dq);
}

AttentionKey key_of(const Launch& launch, const Tensor& qkv, bool backward) {
  const Call& call = *launch.call;
  AttentionKey key;
  key.backward = backward;
  key.dtype = qkv.dtype;
  key.batch = qkv.shape.at(0);
  key.heads = call.int_attr("heads");
  key.kv_heads = call.int_attr("kv_heads");
  key.group = key.heads / key.kv_heads;
  key.length = qkv.shape.at(1);
  key.width = qkv.shape.at(2);
  key.head_dim = key.width / (key.heads + 2 * key.kv_heads);
  return key;
}

// The address of an element of a half type, or of lse.
void* at(const Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.data) + element * dtype_bytes(tensor.dtype);
}

}  // namespace

struct AttentionPlans::AttentionPlan {
  AttentionTensors tensors;
  CudnnPlan plan;
};

// Only the backward accumulates across blocks of a kernel.
const AttentionPlans::AttentionPlan& AttentionPlans::plan(const AttentionKey& key,
                                                          int64_t workspace_bytes) {
  std::shared_ptr<AttentionPlan>& known = plans_[key];
  if (known) {
    CHECK(known->plan.workspace_bytes() <= workspace_bytes, "cuDNN needs ",
          known->plan.workspace_bytes(), " bytes of workspace, the plan has ", workspace_bytes);
    return *known;
  }
  AttentionGraph attention(cudnn_, key);
  AttentionTensors tensors;
  if (key.backward) {
    build_backward(attention, tensors);
  } else {
    build_forward(attention, tensors);
  }
  known = std::make_shared<AttentionPlan>(AttentionPlan{
      tensors,
      attention.graph.build({.workspace_bytes = workspace_bytes, .fixed_order = key.backward})});
  return *known;
}

void AttentionPlans::run(const Launch& launch) {
  const Tensor& qkv = launch.operands.at(0);
  const AttentionKey key = key_of(launch, qkv, false);
  const AttentionPlan& attention = plan(key, launch.workspace_bytes);
  const AttentionTensors& t = attention.tensors;
  const int64_t k = key.heads * key.head_dim;
  const int64_t v = k + key.kv_heads * key.head_dim;
  attention.plan.run({{t.q, qkv.data},
                      {t.k, at(qkv, k)},
                      {t.v, at(qkv, v)},
                      {t.y, launch.results.at(0).data},
                      {t.lse, launch.results.at(1).data}},
                     launch.workspace);
}

void AttentionPlans::run_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& qkv = launch.operands.at(1);
  const Tensor& y = launch.operands.at(2);
  const Tensor& lse = launch.operands.at(3);
  const Tensor& dqkv = launch.results.at(0);
  const AttentionKey full = key_of(launch, qkv, true);
  const AttentionPart part = attention_grad_part(*launch.call);
  AttentionKey key = full;
  key.batch = part.samples;
  key.kv_heads = part.kv_heads;
  const int64_t delta_bytes = key.batch * key.kv_heads * key.group * key.length * 4;
  const int64_t aligned = (delta_bytes + 255) / 256 * 256;
  const AttentionPlan& attention = plan(key, launch.workspace_bytes - aligned);
  const AttentionTensors& t = attention.tensors;
  const int64_t d = full.head_dim;
  for (int64_t b = 0; b < full.batch; b += key.batch) {
    for (int64_t g = 0; g < full.kv_heads; g += key.kv_heads) {
      const int64_t row = b * full.length * full.width;
      const int64_t q = row + g * full.group * d;
      const int64_t k = row + (full.heads + g) * d;
      const int64_t v = k + full.kv_heads * d;
      const int64_t out = (b * full.length * full.heads + g * full.group) * d;
      const int64_t stat = (b * full.heads + g * full.group) * full.length;
      attention.plan.run({{t.q, at(qkv, q)},
                          {t.k, at(qkv, k)},
                          {t.v, at(qkv, v)},
                          {t.y, at(y, out)},
                          {t.dy, at(dy, out)},
                          {t.lse, at(lse, stat)},
                          {t.delta, launch.workspace},
                          {t.dq, at(dqkv, q)},
                          {t.dk, at(dqkv, k)},
                          {t.dv, at(dqkv, v)}},
                         static_cast<char*>(launch.workspace) + aligned);
    }
  }
}

void launch_cudnn_attention(const Launch& launch) {
  cuda_stream(launch).attention().run(launch);
}

void launch_cudnn_attention_grad(const Launch& launch) {
  cuda_stream(launch).attention().run_grad(launch);
}

}  // namespace weft::cuda

// Rotary positions and attention: of packed q, k and v, and of some of the queries with all keys.
#include <algorithm>

#include "graph/dims.h"
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

// Positions of tokens within their documents: i32, one per row of x.
void require_positions(const Call& call, const TensorType& x) {
  require_type(call, "positions", DType::I32, leading_dims(x));
}

std::vector<TensorType> infer_rope(const Call& call) {
  const TensorType& x = call.type("x");
  const int64_t heads = call.int_attr("heads");
  const int64_t head_dim = call.int_attr("head_dim");
  call.require(is_floating(x.dtype) && x.shape.size() == 3, "x is ", x,
               ", expected floating [batch,time,width]");
  call.require(heads > 0 && head_dim > 0 && head_dim % 2 == 0, "heads is ", heads,
               " and head_dim is ", head_dim, ", expected positive numbers and an even head_dim");
  call.require(heads <= x.shape[2] / head_dim, heads, " heads of ", head_dim,
               " do not fit the width of x, ", x.shape[2]);
  call.require(call.double_attr("theta") > 0, "theta is ", format_double(call.double_attr("theta")),
               ", expected a positive number");
  if (call.has_operand("positions")) require_positions(call, x);
  return {x};
}

std::vector<Value*> vjp_rope(Vjp& v) {
  std::vector<Value*> operands = v.node().operands;
  operands[0] = only_grad(v);
  Node* node = v.add(kRope, operands,
                     {{"heads", v.attr("heads")},
                      {"head_dim", v.attr("head_dim")},
                      {"theta", v.attr("theta")},
                      {"factor", v.attr("factor")},
                      {"low_freq_factor", v.attr("low_freq_factor")},
                      {"high_freq_factor", v.attr("high_freq_factor")},
                      {"original_max_position", v.attr("original_max_position")},
                      {"length", v.attr("length")},
                      {"inverse", !std::get<bool>(v.attr("inverse"))}},
                     "x");
  std::vector<Value*> grads(operands.size(), nullptr);
  grads[0] = node->result();
  return grads;
}

// Types derived from q, k and v.
struct AttentionTypes {
  TensorType y, lse;
};

struct Heads {
  int64_t q = 0, kv = 0;
};

Heads require_heads(const Call& call) {
  const Heads heads{call.int_attr("heads"), call.int_attr("kv_heads")};
  call.require(heads.q > 0 && heads.kv > 0 && heads.q % heads.kv == 0, "heads is ", heads.q,
               " and kv_heads is ", heads.kv, ", expected a positive multiple");
  return heads;
}

// Checks a packed operand [batch,time,parts * D]; returns D.
int64_t require_packed(const Call& call, std::string_view name, int64_t parts,
                       std::string_view meaning) {
  const TensorType& packed = call.type(name);
  call.require(is_floating(packed.dtype) && packed.shape.size() == 3, name, " is ", packed,
               ", expected floating [batch,time,width]");
  const int64_t width = packed.shape[2];
  call.require(width > 0 && width % parts == 0, "the width of ", name, " is ", width,
               ", expected a multiple of ", meaning, " = ", parts);
  return width / parts;
}

void require_dropout(const Call& call) {
  const double rate = call.double_attr("dropout");
  call.require(rate >= 0 && rate < 1, "dropout is ", format_double(rate),
               ", expected 0 <= dropout < 1");
  if (call.has_operand("rng")) {
    require_rng(call);
    call.require(call.type("rng").shape != Shape{8}, "rng is ", call.type("rng"),
                 ", expected no state of a shard over cp");
  } else {
    call.require(rate == 0, "dropout is ", format_double(rate), " without rng");
  }
}

// Checks the packed operand, the attributes, and the random state if it is present.
AttentionTypes attention_types(const Call& call) {
  const Heads heads = require_heads(call);
  const int64_t dim = require_packed(call, "qkv", heads.q + 2 * heads.kv, "heads + 2 kv_heads");
  require_dropout(call);
  const TensorType& qkv = call.type("qkv");
  return {{qkv.dtype, {qkv.shape[0], qkv.shape[1], heads.q * dim}, {}},
          statistics(qkv, {qkv.shape[0], heads.q, qkv.shape[1]})};
}

// Whether kv has the rows of one shard over cp, not those of all.
bool has_blocks(const Call& call) {
  return call.int_attr("blocks") > 1;
}

// The same for q and kv, of which q has a shard of the rows, and kv all of them or one block.
AttentionTypes context_types(const Call& call) {
  const Heads heads = require_heads(call);
  const int64_t dim = require_packed(call, "q", heads.q, "heads");
  const TensorType& q = call.type("q");
  const Shape& kv = call.type("kv").shape;
  require_type(call, "kv", q.dtype,
               {q.shape[0], kv.size() == 3 ? kv[1] : q.shape[1], 2 * heads.kv * dim});
  const int64_t blocks = call.int_attr("blocks"), block = call.int_attr("block");
  call.require(blocks >= 1 && block >= 0 && block < blocks, "block is ", block, " of ", blocks,
               ", expected one of the blocks");
  const bool even = q.shape[1] % 2 == 0;
  const bool divides = kv[1] == q.shape[1] || (even && blocks == 1 && kv[1] % q.shape[1] == 0);
  call.require(divides && (even || blocks == 1), "q is ", q, " and kv has ", kv[1],
               " rows, expected as many, or, as one block, a multiple of an even number of rows");
  require_type(call, "positions", DType::I32, leading_dims(q));
  require_type(call, "coordinate", DType::I32, {});
  require_dropout(call);
  const TensorType lse = statistics(q, {q.shape[0], heads.q, q.shape[1]});
  return {{has_blocks(call) ? lse.dtype : q.dtype, q.shape, {}}, lse};
}

std::vector<TensorType> infer_split_qkv(const Call& call) {
  const Heads heads = require_heads(call);
  const int64_t dim = require_packed(call, "qkv", heads.q + 2 * heads.kv, "heads + 2 kv_heads");
  TensorType q = call.type("qkv"), kv = q;
  q.shape[2] = heads.q * dim;
  kv.shape[2] = 2 * heads.kv * dim;
  return {q, kv};
}

std::vector<TensorType> infer_concat_qkv(const Call& call) {
  const Heads heads = require_heads(call);
  const int64_t dim = require_packed(call, "q", heads.q, "heads");
  TensorType qkv = call.type("q");
  require_type(call, "kv", qkv.dtype, {qkv.shape[0], qkv.shape[1], 2 * heads.kv * dim});
  qkv.shape[2] = (heads.q + 2 * heads.kv) * dim;
  return {qkv};
}

std::vector<TensorType> infer_attention_grad(const Call& call) {
  const AttentionTypes types = attention_types(call);
  require_type(call, "dy", types.y.dtype, types.y.shape);
  require_type(call, "y", types.y.dtype, types.y.shape);
  require_type(call, "lse", types.lse.dtype, types.lse.shape);
  return {call.type("qkv")};
}

std::vector<Value*> vjp_attention(Vjp& v, const OpDef& grad) {
  std::vector<Value*> operands = {only_grad(v), v.operand("qkv"), v.result("y"), v.result("lse")};
  const std::vector<Value*>& own = v.node().operands;
  operands.insert(operands.end(), own.begin() + 1, own.end());
  Node* node = v.add(grad, operands,
                     {{"heads", v.attr("heads")},
                      {"kv_heads", v.attr("kv_heads")},
                      {"dropout", v.attr("dropout")},
                      {"stream", v.attr("stream")}},
                     "qkv");
  std::vector<Value*> grads(own.size(), nullptr);
  grads[0] = node->result();
  return grads;
}

// The operand whose width says how many heads a call has.
std::string_view width_operand(const Call& call) {
  const auto& operands = call.op->parsed().operands;
  for (const std::string_view name : {"qkv", "q"}) {
    const auto is = [&](const OperandSpec& spec) { return spec.name == name; };
    if (std::any_of(operands.begin(), operands.end(), is)) return name;
  }
  return "x";
}

// Replaces p in the rule by the packed heads of q, k and v, and w by those of k and v: a rank that
// has a part of the heads has the same part of each.
std::string by_head(const Call& call, std::string_view rule) {
  const int64_t heads = call.int_attr("heads"), kv_heads = call.int_attr("kv_heads");
  const std::string_view operand = width_operand(call);
  const int64_t parts = operand == "qkv" ? heads + 2 * kv_heads : heads;
  const int64_t dim = row_length(call.type(operand)) / parts;
  const std::string q_k_v = dims::packed("h", {heads * dim, kv_heads * dim, kv_heads * dim});
  const std::string k_v = dims::packed("h", {kv_heads * dim, kv_heads * dim});
  std::string text;
  for (const char c : rule) text += c == 'p' ? q_k_v : c == 'w' ? k_v : std::string(1, c);
  return text;
}

// The numbers of heads are divided like the width of the operand that has them.
void localize_heads(const Call& call, Call& local) {
  const Signature& signature = call.op->parsed();
  const std::string_view packed = width_operand(call);
  const int64_t width = row_length(call.type(packed));
  const int64_t part = row_length(local.type(packed));
  for (const std::string_view name : {"heads", "kv_heads"}) {
    if (call.op == &kRope && name == "kv_heads") continue;
    const int64_t heads = call.int_attr(name);
    call.require(heads * part % width == 0, name, " is ", heads, ", which does not divide over ",
                 width / part, " ranks");
    local.attrs.at(signature.attr_index(name)) = heads * part / width;
  }
}

// Positions may be those of a longer sequence, of which x is a shard.
void localize_rope(const Call& call, Call& local) {
  localize_heads(call, local);
  const int64_t time = call.type("x").shape[1];
  if (local.type("x").shape[1] == time || call.int_attr("length") > 0) return;
  local.attrs.at(call.op->parsed().attr_index("length")) = time;
}

// `matmuls` over the causal half: 2 D FLOPs for each pair of positions. A shard of the queries has
// its share of the pairs, which is half of those with each block of keys.
Cost cost_attention(const Call& call, double matmuls) {
  const bool packed = width_operand(call) == "qkv";
  const Shape& q = call.type(packed ? "qkv" : "q").shape;
  const int64_t heads = call.int_attr("heads");
  const int64_t head_dim = q[2] / (packed ? heads + 2 * call.int_attr("kv_heads") : heads);
  const auto queries = static_cast<double>(q[1]);
  const auto keys = static_cast<double>(packed ? q[1] : call.type("kv").shape[1]);
  return {.flops = matmuls * static_cast<double>(q[0] * heads * head_dim) * queries * (keys + 1)};
}

}  // namespace

constinit const OpDef kRope{
    .signature =
        "rope(x, positions?; heads: int, head_dim: int, theta = 10000.0, factor = 0.0, "
        "low_freq_factor = 1.0, high_freq_factor = 4.0, original_max_position = 8192, "
        "length = 0, inverse = false) -> y",
    .doc =
        "Rotary positions, rotate-half layout: the first `heads` heads of x [batch,time,width] are "
        "rotated by position, the rest are copied. Row t is at position t, or at the one given by "
        "`positions` [batch,time], which are below `length`, or below time if that is 0. A "
        "positive "
        "factor scales the frequencies as Llama 3.1 does; `inverse` rotates back, which is the "
        "gradient.",
    .traits = {.linear = true},
    .infer = infer_rope,
    .vjp = vjp_rope,
    .cost = [](const Call& call) { return per_element(call, 3); },
    .sharding_of =
        [](const Call& call) {
          const int64_t rotated = call.int_attr("heads") * call.int_attr("head_dim");
          const int64_t rest = row_length(call.type("x")) - rotated;
          const std::string dim =
              dims::packed("h", rest == 0 ? std::vector{rotated} : std::vector{rotated, rest});
          const std::string_view rows = call.has_operand("positions") ? "bs" : "bT";
          return cat(rows, dim, ", ", rows, " -> ", rows, dim);
        },
    .localize = localize_rope,
    .samples =
        "x: f32[2,5,24]; heads=4, head_dim=4 | "
        "x: f32[1,7,16]; heads=2, head_dim=8, inverse=true | "
        "x: f32[2,3,64]; heads=1, head_dim=64, theta=500000.0, factor=8.0, "
        "original_max_position=32 | x: bf16[1,9,8]; heads=1, head_dim=8 | "
        "x: f32[2,9,24], positions: i32[2,9]; heads=2, head_dim=8 | "
        "x: f32[2,9,24], positions: i32[2,9]; heads=2, head_dim=8, length=36 | "
        "x: f32[2,131,96]; heads=5, head_dim=16",
};

constinit const OpDef kAttention{
    .signature =
        "attention(qkv, rng?; heads: int, kv_heads: int, dropout = 0.0, stream = 0) -> y, "
        "lse",
    .doc =
        "Causal attention with scale 1/sqrt(D) over packed qkv [batch,time,(heads+2 kv_heads)*D] "
        "to y [batch,time,heads*D]; query head h reads key head h / (heads/kv_heads). `dropout` "
        "acts on the probabilities [batch,heads,time,time], whose random numbers follow from rng "
        "as those of `dropout` do. lse [batch,heads,time] is kept for the gradient.",
    .traits = {.matmul = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const AttentionTypes types = attention_types(call);
      return {types.y, types.lse};
    },
    .vjp = [](Vjp& v) { return vjp_attention(v, kAttentionGrad); },
    .cost = [](const Call& call) { return cost_attention(call, 2); },
    .sharding_of = [](const Call& call) { return by_head(call, "bTp, R -> bTh, bhT"); },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "qkv: f32[2,5,24]; heads=2, kv_heads=2 | qkv: f32[1,7,24]; heads=4, kv_heads=2 | "
        "qkv: f32[2,6,12], rng: i32[4]; heads=2, kv_heads=1, dropout=0.25, stream=11 | "
        "qkv: f32[1,33,15]; heads=3, kv_heads=1 | qkv: bf16[1,9,24]; heads=1, kv_heads=1 | "
        "qkv: f32[2,131,128], rng: i32[4]; heads=4, kv_heads=2, dropout=0.1, stream=5 | "
        "qkv: f32[2,6,12], rng: i32[6]; heads=2, kv_heads=1, dropout=0.25, stream=11 | "
        "qkv: f32[2,36,32], rng: i32[6]; heads=2, kv_heads=1, dropout=0.1, stream=5",
};

constinit const OpDef kAttentionGrad{
    .signature =
        "attention_grad(dy, qkv, y, lse, rng?; heads: int, kv_heads: int, dropout = 0.0, "
        "stream = 0) -> dqkv",
    .doc = "Gradient of attention; recomputes the probabilities from lse.",
    .traits = {.differentiable = false, .matmul = true},
    .infer = infer_attention_grad,
    .cost = [](const Call& call) { return cost_attention(call, 5); },
    .sharding_of = [](const Call& call) { return by_head(call, "bTh, bTp, bTh, bhT, R -> bTp"); },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "dy: f32[2,5,8], qkv: f32[2,5,24], y: f32[2,5,8], lse: f32[2,2,5]; heads=2, "
        "kv_heads=2 | dy: f32[1,7,12], qkv: f32[1,7,24], y: f32[1,7,12], lse: f32[1,4,7]; "
        "heads=4, kv_heads=2 | dy: f32[2,6,6], qkv: f32[2,6,12], y: f32[2,6,6], "
        "lse: f32[2,2,6], rng: i32[4]; heads=2, kv_heads=1, dropout=0.25, stream=11 | "
        "dy: bf16[1,9,8], qkv: bf16[1,9,24], y: bf16[1,9,8], lse: f32[1,1,9]; heads=1, "
        "kv_heads=1 | "
        "dy: f32[2,131,64], qkv: f32[2,131,128], y: f32[2,131,64], lse: f32[2,4,131], rng: i32[4]; "
        "heads=4, kv_heads=2, dropout=0.1, stream=5 | "
        "dy: f32[2,6,6], qkv: f32[2,6,12], y: f32[2,6,6], lse: f32[2,2,6], rng: i32[6]; heads=2, "
        "kv_heads=1, dropout=0.25, stream=11 | "
        "dy: f32[2,36,16], qkv: f32[2,36,32], y: f32[2,36,16], lse: f32[2,2,36], rng: i32[6]; "
        "heads=2, kv_heads=1, dropout=0.1, stream=5",
};

constinit const OpDef kDocumentAttention{
    .signature =
        "document_attention(qkv, positions, rng?; heads: int, kv_heads: int, dropout = 0.0, "
        "stream = 0) -> y, lse",
    .doc =
        "Attention between tokens of the same document: the keys of row t are those from row "
        "t - positions[b,t] to t. Otherwise as attention.",
    .traits = {.matmul = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const AttentionTypes types = attention_types(call);
      require_positions(call, call.type("qkv"));
      return {types.y, types.lse};
    },
    .vjp = [](Vjp& v) { return vjp_attention(v, kDocumentAttentionGrad); },
    .cost = [](const Call& call) { return cost_attention(call, 2); },
    .sharding_of = [](const Call& call) { return by_head(call, "bTp, bT, R -> bTh, bhT"); },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "qkv: f32[2,7,24], positions: i32[2,7]; heads=4, kv_heads=2 | "
        "qkv: f32[2,6,12], positions: i32[2,6], rng: i32[4]; heads=2, kv_heads=1, dropout=0.25, "
        "stream=11 | qkv: bf16[1,9,24], positions: i32[1,9]; heads=1, kv_heads=1 | "
        "qkv: f32[3,331,32], positions: i32[3,331]; heads=2, kv_heads=1 | "
        "qkv: f32[2,131,128], positions: i32[2,131], rng: i32[4]; heads=4, kv_heads=2, "
        "dropout=0.1, stream=5 | "
        "qkv: f32[2,6,12], positions: i32[2,6], rng: i32[6]; heads=2, kv_heads=1, dropout=0.25, "
        "stream=11",
};

constinit const OpDef kDocumentAttentionGrad{
    .signature =
        "document_attention_grad(dy, qkv, y, lse, positions, rng?; heads: int, kv_heads: int, "
        "dropout = 0.0, stream = 0) -> dqkv",
    .doc = "Gradient of document_attention.",
    .traits = {.differentiable = false, .matmul = true},
    .infer =
        [](const Call& call) {
          std::vector<TensorType> types = infer_attention_grad(call);
          require_positions(call, call.type("qkv"));
          return types;
        },
    .cost = [](const Call& call) { return cost_attention(call, 5); },
    .sharding_of =
        [](const Call& call) { return by_head(call, "bTh, bTp, bTh, bhT, bT, R -> bTp"); },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "dy: f32[2,7,12], qkv: f32[2,7,24], y: f32[2,7,12], lse: f32[2,4,7], positions: i32[2,7]; "
        "heads=4, kv_heads=2 | dy: f32[2,6,6], qkv: f32[2,6,12], y: f32[2,6,6], "
        "lse: f32[2,2,6], positions: i32[2,6], rng: i32[4]; heads=2, kv_heads=1, dropout=0.25, "
        "stream=11 | dy: bf16[1,9,8], qkv: bf16[1,9,24], y: bf16[1,9,8], lse: f32[1,1,9], "
        "positions: i32[1,9]; heads=1, kv_heads=1 | "
        "dy: f32[3,331,16], qkv: f32[3,331,32], y: f32[3,331,16], lse: f32[3,2,331], "
        "positions: i32[3,331]; heads=2, kv_heads=1 | "
        "dy: f32[2,131,64], qkv: f32[2,131,128], y: f32[2,131,64], lse: f32[2,4,131], "
        "positions: i32[2,131], rng: i32[4]; heads=4, kv_heads=2, dropout=0.1, stream=5 | "
        "dy: f32[2,6,6], qkv: f32[2,6,12], y: f32[2,6,6], lse: f32[2,2,6], positions: i32[2,6], "
        "rng: i32[6]; heads=2, kv_heads=1, dropout=0.25, stream=11",
};

constinit const OpDef kSplitQkv{
    .signature = "split_qkv(qkv; heads: int, kv_heads: int) -> q, kv",
    .doc =
        "Packed qkv [batch,time,(heads+2 kv_heads)*D] as q [batch,time,heads*D] and the packed kv "
        "[batch,time,2*kv_heads*D]: ranks that share a sequence need the kv of all of it.",
    .traits = {.differentiable = false, .linear = true},
    .infer = infer_split_qkv,
    .sharding_of = [](const Call& call) { return by_head(call, "bsp -> bsh, bsw"); },
    .localize = localize_heads,
    .samples =
        "qkv: f32[2,5,24]; heads=2, kv_heads=2 | qkv: bf16[1,7,24]; heads=4, kv_heads=2 | "
        "qkv: f32[2,131,128]; heads=4, kv_heads=2",
};

constinit const OpDef kConcatQkv{
    .signature = "concat_qkv(q, kv; heads: int, kv_heads: int) -> qkv",
    .doc = "The inverse of split_qkv.",
    .traits = {.differentiable = false, .linear = true},
    .infer = infer_concat_qkv,
    .sharding_of = [](const Call& call) { return by_head(call, "bsh, bsw -> bsp"); },
    .localize = localize_heads,
    .samples =
        "q: f32[2,5,8], kv: f32[2,5,16]; heads=2, kv_heads=2 | "
        "q: bf16[1,7,12], kv: bf16[1,7,12]; heads=4, kv_heads=2 | "
        "q: f32[2,131,64], kv: f32[2,131,64]; heads=4, kv_heads=2",
};

constinit const OpDef kContextAttention{
    .signature =
        "context_attention(q, kv, positions, coordinate, rng?; heads: int, kv_heads: int, "
        "dropout = 0.0, stream = 0, blocks = 1, block = 0) -> y, lse",
    .doc =
        "Attention of the queries of one shard over cp, q [batch,t,heads*D], to the keys and "
        "values of the full sequence, kv [batch,T,2*kv_heads*D]. The shard is number `coordinate` "
        "of T/t: one chunk of t/2 rows near the head of the sequence and one near the tail. The "
        "keys of a query in row r of the sequence are those from r - positions[b,t] to r. "
        "With several `blocks`, kv [batch,t,2*kv_heads*D] is that of the shard `block` ranks back, "
        "coordinate - block modulo blocks, and y is f32: context_attention_more adds the other "
        "blocks. A query that sees no key has y 0 and lse minus infinity. Otherwise as attention.",
    .traits = {.matmul = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const AttentionTypes types = context_types(call);
      return {types.y, types.lse};
    },
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      std::vector<Value*> operands = {only_grad(v), v.operand("q"), v.operand("kv"), v.result("y"),
                                      v.result("lse")};
      const std::vector<Value*>& own = v.node().operands;
      operands.insert(operands.end(), own.begin() + 2, own.end());
      Node* node = v.add(kContextAttentionGrad, operands,
                         {{"heads", v.attr("heads")},
                          {"kv_heads", v.attr("kv_heads")},
                          {"dropout", v.attr("dropout")},
                          {"stream", v.attr("stream")},
                          {"blocks", v.attr("blocks")},
                          {"block", v.attr("block")}},
                         "q");
      std::vector<Value*> grads(own.size(), nullptr);
      grads[0] = node->result("dq");
      grads[1] = node->result("dkv");
      return grads;
    },
    .cost = [](const Call& call) { return cost_attention(call, 2); },
    .sharding_of =
        [](const Call& call) {
          return by_head(call, has_blocks(call) ? "bsh, bsw, bs, , R -> bsh, bhs"
                                                : "bsh, bTw, bs, , R -> bsh, bhs");
        },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "q: f32[2,2,8], kv: f32[2,8,8], positions: i32[2,2], coordinate: i32[]; heads=2, "
        "kv_heads=1 | q: f32[2,2,16], kv: f32[2,8,16], positions: i32[2,2], coordinate: i32[], "
        "rng: i32[4]; heads=4, kv_heads=2, dropout=0.25, stream=11 | "
        "q: bf16[1,4,8], kv: bf16[1,16,16], positions: i32[1,4], coordinate: i32[]; heads=1, "
        "kv_heads=1 | q: f32[2,166,64], kv: f32[2,498,64], positions: i32[2,166], "
        "coordinate: i32[]; heads=4, kv_heads=2 | q: f32[2,70,64], kv: f32[2,210,64], "
        "positions: i32[2,70], coordinate: i32[], rng: i32[6]; heads=4, kv_heads=2, dropout=0.1, "
        "stream=5 | q: f32[2,4,16], kv: f32[2,4,16], positions: i32[2,4], coordinate: i32[], "
        "rng: i32[4]; heads=4, kv_heads=2, dropout=0.25, stream=11, blocks=3, block=1 | "
        "q: f32[2,166,64], kv: f32[2,166,64], positions: i32[2,166], coordinate: i32[]; heads=4, "
        "kv_heads=2, blocks=3",
};

constinit const OpDef kContextAttentionMore{
    .signature =
        "context_attention_more(q, kv, y, lse, positions, coordinate, rng?; heads: int, "
        "kv_heads: int, dropout = 0.0, stream = 0, blocks: int, block = 0) -> y, lse",
    .doc =
        "Adds a block of keys to the results y and lse of context_attention with the blocks before "
        "it, as if all of them were one.",
    .traits = {.in_place = true, .differentiable = false, .matmul = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const AttentionTypes types = context_types(call);
      call.require(has_blocks(call), "blocks is ", call.int_attr("blocks"), ", expected several");
      require_type(call, "y", types.y.dtype, types.y.shape);
      require_type(call, "lse", types.lse.dtype, types.lse.shape);
      return {types.y, types.lse};
    },
    .cost = [](const Call& call) { return cost_attention(call, 2); },
    .sharding_of =
        [](const Call& call) { return by_head(call, "bsh, bsw, bsh, bhs, bs, , R -> bsh, bhs"); },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "q: f32[2,2,8], kv: f32[2,2,8], y: f32[2,2,8], lse: f32[2,2,2], positions: i32[2,2], "
        "coordinate: i32[]; heads=2, kv_heads=1, blocks=3, block=1 | "
        "q: f32[2,4,16], kv: f32[2,4,16], y: f32[2,4,16], lse: f32[2,4,4], positions: i32[2,4], "
        "coordinate: i32[], rng: i32[4]; heads=4, kv_heads=2, dropout=0.25, stream=11, blocks=3, "
        "block=2 | q: bf16[1,6,8], kv: bf16[1,6,16], y: f32[1,6,8], lse: f32[1,1,6], "
        "positions: i32[1,6], coordinate: i32[]; heads=1, kv_heads=1, blocks=3, block=1 | "
        "q: f32[2,166,64], kv: f32[2,166,64], y: f32[2,166,64], lse: f32[2,4,166], "
        "positions: i32[2,166], coordinate: i32[]; heads=4, kv_heads=2, blocks=3, block=1 | "
        "q: f32[2,140,64], kv: f32[2,140,64], y: f32[2,140,64], lse: f32[2,4,140], "
        "positions: i32[2,140], coordinate: i32[], rng: i32[6]; heads=4, kv_heads=2, dropout=0.1, "
        "stream=5, blocks=4, block=2",
};

constinit const OpDef kContextAttentionGrad{
    .signature =
        "context_attention_grad(dy, q, kv, y, lse, positions, coordinate, rng?; heads: int, "
        "kv_heads: int, dropout = 0.0, stream = 0, blocks = 1, block = 0) -> dq, dkv",
    .doc =
        "Gradient of context_attention; dkv is what the queries of the shard contribute. With "
        "several `blocks`, y and lse are those of all blocks, and dq is what this one contributes.",
    .traits = {.differentiable = false, .matmul = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const AttentionTypes types = context_types(call);
      require_type(call, "dy", call.type("q").dtype, types.y.shape);
      require_type(call, "y", call.type("q").dtype, types.y.shape);
      require_type(call, "lse", types.lse.dtype, types.lse.shape);
      return {call.type("q"), call.type("kv")};
    },
    .cost = [](const Call& call) { return cost_attention(call, 5); },
    .sharding_of =
        [](const Call& call) {
          return by_head(call, has_blocks(call) ? "bsh, bsh, bsw, bsh, bhs, bs, , R -> bsh, bsw"
                                                : "bsh, bsh, bTw, bsh, bhs, bs, , R -> bsh, bTw");
        },
    .located = 'h',
    .localize = localize_heads,
    .samples =
        "dy: f32[2,2,8], q: f32[2,2,8], kv: f32[2,8,8], y: f32[2,2,8], lse: f32[2,2,2], "
        "positions: i32[2,2], coordinate: i32[]; heads=2, kv_heads=1 | "
        "dy: f32[2,2,16], q: f32[2,2,16], kv: f32[2,8,16], y: f32[2,2,16], lse: f32[2,4,2], "
        "positions: i32[2,2], coordinate: i32[], rng: i32[4]; heads=4, kv_heads=2, dropout=0.25, "
        "stream=11 | dy: bf16[1,4,8], q: bf16[1,4,8], kv: bf16[1,16,16], y: bf16[1,4,8], "
        "lse: f32[1,1,4], positions: i32[1,4], coordinate: i32[]; heads=1, kv_heads=1 | "
        "dy: f32[2,166,64], q: f32[2,166,64], kv: f32[2,498,64], y: f32[2,166,64], "
        "lse: f32[2,4,166], positions: i32[2,166], coordinate: i32[]; heads=4, kv_heads=2 | "
        "dy: f32[2,70,64], q: f32[2,70,64], kv: f32[2,210,64], y: f32[2,70,64], "
        "lse: f32[2,4,70], positions: i32[2,70], coordinate: i32[], rng: i32[6]; heads=4, "
        "kv_heads=2, dropout=0.1, stream=5 | "
        "dy: f32[2,4,16], q: f32[2,4,16], kv: f32[2,4,16], y: f32[2,4,16], lse: f32[2,4,4], "
        "positions: i32[2,4], coordinate: i32[], rng: i32[4]; heads=4, kv_heads=2, dropout=0.25, "
        "stream=11, blocks=3, block=1 | dy: bf16[1,6,8], q: bf16[1,6,8], kv: bf16[1,6,16], "
        "y: bf16[1,6,8], lse: f32[1,1,6], positions: i32[1,6], coordinate: i32[]; heads=1, "
        "kv_heads=1, blocks=3, block=2 | "
        "dy: f32[2,166,64], q: f32[2,166,64], kv: f32[2,166,64], y: f32[2,166,64], "
        "lse: f32[2,4,166], positions: i32[2,166], coordinate: i32[]; heads=4, kv_heads=2, "
        "blocks=3",
};

}  // namespace weft

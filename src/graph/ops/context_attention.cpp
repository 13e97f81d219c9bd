// Attention of some of the queries to all keys, for sequences that are sharded over cp.
#include "graph/ops/attention_rules.h"
#include "graph/ops/ops.h"

namespace weft {
namespace {

// Whether kv has the rows of one shard over cp, not those of all.
bool has_blocks(const Call& call) {
  return call.int_attr("blocks") > 1;
}

// Checks q, which has a shard of the rows, kv, which has all of them or one block, and the
// attributes.
AttentionTypes context_types(const Call& call) {
  const AttentionHeads heads = require_query_heads(call, "q");
  const TensorType& q = call.type("q");
  const Shape& kv = call.type("kv").shape;
  require_type(call, "kv", q.dtype,
               {q.shape[0], kv.size() == 3 ? kv[1] : q.shape[1], heads.kv_width()});
  const int64_t blocks = call.int_attr("blocks"), block = call.int_attr("block");
  call.require(blocks >= 1 && block >= 0 && block < blocks, "block is ", block, " of ", blocks,
               ", expected one of the blocks");
  const bool even = q.shape[1] % 2 == 0;
  const bool divides = kv[1] == q.shape[1] || (even && blocks == 1 && kv[1] % q.shape[1] == 0);
  call.require(divides && (even || blocks == 1), "q is ", q, " and kv has ", kv[1],
               " rows, expected as many, or, as one block, a multiple of an even number of rows");
  require_positions(call, q);
  require_type(call, "coordinate", DType::I32, {});
  require_options(call);
  const TensorType lse = statistics(q, {q.shape[0], heads.q, q.shape[1]});
  return {{has_blocks(call) ? lse.dtype : q.dtype, {q.shape[0], q.shape[1], heads.y_width()}, {}},
          lse};
}

std::vector<TensorType> infer_split_qkv(const Call& call) {
  const AttentionHeads heads = require_packed_heads(call, "qkv");
  TensorType q = call.type("qkv"), kv = q;
  q.shape[2] = heads.q_width();
  kv.shape[2] = heads.kv_width();
  return {q, kv};
}

std::vector<TensorType> infer_concat_qkv(const Call& call) {
  const AttentionHeads heads = require_query_heads(call, "q");
  TensorType qkv = call.type("q");
  require_type(call, "kv", qkv.dtype, {qkv.shape[0], qkv.shape[1], heads.kv_width()});
  qkv.shape[2] = heads.packed_width();
  return {qkv};
}

}  // namespace

constinit const OpDef kSplitQkv{
    .signature = "split_qkv(qkv; heads: int, kv_heads: int, value_dim = 0) -> q, kv",
    .doc =
        "Packed qkv [batch,time,(heads+2 kv_heads)*D] as q [batch,time,heads*D] and the packed kv "
        "[batch,time,2*kv_heads*D]: ranks that share a sequence need the kv of all of it.",
    .traits = {.differentiable = false, .linear = true},
    .infer = infer_split_qkv,
    .sharding_of = [](const Call& call) { return by_head(call, "bsp -> bsh, bsw"); },
    .localize = localize_heads,
    .samples =
        "qkv: f32[2,5,24]; heads=2, kv_heads=2 | qkv: bf16[1,7,24]; heads=4, kv_heads=2 | "
        "qkv: f32[2,131,128]; heads=4, kv_heads=2 | "
        "qkv: f32[2,5,26]; heads=2, kv_heads=2, value_dim=3",
};

constinit const OpDef kConcatQkv{
    .signature = "concat_qkv(q, kv; heads: int, kv_heads: int, value_dim = 0) -> qkv",
    .doc = "The inverse of split_qkv.",
    .traits = {.differentiable = false, .linear = true},
    .infer = infer_concat_qkv,
    .sharding_of = [](const Call& call) { return by_head(call, "bsh, bsw -> bsp"); },
    .localize = localize_heads,
    .samples =
        "q: f32[2,5,8], kv: f32[2,5,16]; heads=2, kv_heads=2 | "
        "q: bf16[1,7,12], kv: bf16[1,7,12]; heads=4, kv_heads=2 | "
        "q: f32[2,131,64], kv: f32[2,131,64]; heads=4, kv_heads=2 | "
        "q: f32[2,5,10], kv: f32[2,5,16]; heads=2, kv_heads=2, value_dim=3",
};

constinit const OpDef kContextAttention{
    .signature =
        "context_attention(q, kv, positions, coordinate, rng?; heads: int, kv_heads: int, "
        "value_dim = 0, scale = 0.0, chunk = 0, dropout = 0.0, stream = 0, blocks = 1, block = 0) "
        "-> "
        "y, lse",
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
                          {"value_dim", v.attr("value_dim")},
                          {"scale", v.attr("scale")},
                          {"chunk", v.attr("chunk")},
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
    .cost = [](const Call& call) { return cost_attention(call, kForwardMatmuls); },
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
        "kv_heads=2, blocks=3 | "
        "q: f32[2,4,10], kv: f32[2,16,16], positions: i32[2,4], coordinate: i32[]; heads=2, "
        "kv_heads=2, value_dim=3, scale=0.4, chunk=5 | q: f32[2,140,80], kv: f32[2,140,64], "
        "positions: i32[2,140], coordinate: i32[]; heads=4, kv_heads=2, value_dim=12, chunk=50, "
        "blocks=3, block=1",
};

constinit const OpDef kContextAttentionMore{
    .signature =
        "context_attention_more(q, kv, y, lse, positions, coordinate, rng?; heads: int, "
        "kv_heads: int, value_dim = 0, scale = 0.0, chunk = 0, dropout = 0.0, stream = 0, "
        "blocks: int, block = 0) -> y, lse",
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
    .cost = [](const Call& call) { return cost_attention(call, kForwardMatmuls); },
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
        "stream=5, blocks=4, block=2 | "
        "q: f32[2,4,10], kv: f32[2,4,16], y: f32[2,4,6], lse: f32[2,2,4], positions: i32[2,4], "
        "coordinate: i32[]; heads=2, kv_heads=2, value_dim=3, scale=0.4, chunk=5, blocks=3, "
        "block=1",
};

constinit const OpDef kContextAttentionGrad{
    .signature =
        "context_attention_grad(dy, q, kv, y, lse, positions, coordinate, rng?; heads: int, "
        "kv_heads: int, value_dim = 0, scale = 0.0, chunk = 0, dropout = 0.0, stream = 0, "
        "blocks = 1, block = 0) -> dq, dkv",
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
    .cost = [](const Call& call) { return cost_attention(call, kBackwardMatmuls); },
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
        "blocks=3 | "
        "dy: f32[2,4,6], q: f32[2,4,10], kv: f32[2,16,16], y: f32[2,4,6], lse: f32[2,2,4], "
        "positions: i32[2,4], coordinate: i32[]; heads=2, kv_heads=2, value_dim=3, scale=0.4, "
        "chunk=5 "
        "| dy: f32[2,140,48], q: f32[2,140,80], kv: f32[2,140,64], y: f32[2,140,48], "
        "lse: f32[2,4,140], positions: i32[2,140], coordinate: i32[]; heads=4, kv_heads=2, "
        "value_dim=12, chunk=50, blocks=3, block=1",
};

}  // namespace weft

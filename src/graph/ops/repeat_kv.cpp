// Packed query, key and value weights whose key and value heads are repeated, for tensor
// parallelism over more ranks than there are key heads.
#include "graph/dims.h"
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

struct Heads {
  int64_t q, kv, repeats, shards;

  int64_t packed() const { return q + 2 * kv; }
  int64_t repeated() const { return (q + 2 * kv * repeats) / shards; }
};

Heads heads_of(const Call& call) {
  const Heads heads{call.int_attr("heads"), call.int_attr("kv_heads"), call.int_attr("repeats"),
                    call.int_attr("shards")};
  call.require(heads.q > 0 && heads.kv > 0 && heads.repeats > 0 && heads.shards > 0,
               "heads, kv_heads, repeats and shards are ", heads.q, ", ", heads.kv, ", ",
               heads.repeats, " and ", heads.shards, ", expected positive numbers");
  call.require(heads.q % heads.shards == 0 && heads.kv * heads.repeats % heads.shards == 0,
               "shards is ", heads.shards, ", expected a divisor of ", heads.q, " heads and ",
               heads.kv * heads.repeats, " repeated ones");
  return heads;
}

// The type of `operand` with the rows of `to` heads instead of `from`.
TensorType with_heads(const Call& call, std::string_view operand, int64_t from, int64_t to) {
  require_floating(call, operand, 2);
  TensorType type = call.type(operand);
  call.require(type.shape.size() == 2 && type.shape[0] % from == 0, operand, " is ", type,
               ", expected [rows,columns] with the rows of ", from, " heads");
  type.shape[0] = type.shape[0] / from * to;
  return type;
}

// The rows of q|k|v with k and v repeated.
std::string repeated_rows(const Call& call, std::string_view operand, int64_t heads_in_operand) {
  const Heads heads = heads_of(call);
  const int64_t rows = call.type(operand).shape[0] / heads_in_operand;
  const int64_t kv = heads.kv * heads.repeats / heads.shards * rows;
  return dims::packed("h", {heads.q / heads.shards * rows, kv, kv});
}

void require_coordinate(const Call& call) {
  if (call.has_operand("coordinate")) require_type(call, "coordinate", DType::I32, {});
}

// One rank makes its own shard.
void localize_shards(Call& local, int64_t rows, int64_t local_rows) {
  Attr& shards = local.attrs.at(local.op->parsed().attr_index("shards"));
  shards = std::get<int64_t>(shards) * (rows / local_rows);
}

std::vector<Value*> vjp_repeat_kv(Vjp& v) {
  Value* dy = only_grad(v);
  std::vector<Value*> operands = {dy};
  if (Value* coordinate = v.operand("coordinate")) operands.push_back(coordinate);
  const Node& node = v.node();
  Node* dw = v.add(kRepeatKvGrad, operands,
                   {{"heads", node.attr("heads")},
                    {"kv_heads", node.attr("kv_heads")},
                    {"repeats", node.attr("repeats")},
                    {"shards", node.attr("shards")}},
                   "w");
  std::vector<Value*> grads = {dw->result()};
  grads.resize(node.operands.size(), nullptr);
  return grads;
}

}  // namespace

constinit const OpDef kRepeatKv{
    .signature =
        "repeat_kv(w, coordinate?; heads: int, kv_heads: int, repeats: int, shards = 1) -> y",
    .doc =
        "Packed rows q|k|v of `heads`, `kv_heads` and `kv_heads` heads, with each head of k and v "
        "`repeats` times in a row. With a coordinate, the result is that one of `shards` shards, "
        "each of which has an equal part of q, of k and of v.",
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const Heads heads = heads_of(call);
      require_coordinate(call);
      return {with_heads(call, "w", heads.packed(), heads.repeated())};
    },
    .vjp = vjp_repeat_kv,
    .cost =
        [](const Call& call) {
          return Cost{.bytes = 2 * static_cast<double>(call.results.at(0).bytes())};
        },
    .sharding_of =
        [](const Call& call) {
          return cat("Hc, -> ", repeated_rows(call, "w", heads_of(call).packed()), "c");
        },
    .located = 'h',
    .localize =
        [](const Call& call, Call& local) {
          localize_shards(local, call.results.at(0).shape[0], local.results.at(0).shape[0]);
        },
    .samples =
        "w: f32[12,5]; heads=4, kv_heads=1, repeats=2 | w: bf16[20,3]; heads=6, kv_heads=2, "
        "repeats=3 | w: f32[24,5], coordinate: i32[]; heads=6, kv_heads=3, repeats=2, shards=3 | "
        "w: f32[576,67], coordinate: i32[]; heads=12, kv_heads=3, repeats=2, shards=3",
};

constinit const OpDef kRepeatKvGrad{
    .signature =
        "repeat_kv_grad(dy, coordinate?; heads: int, kv_heads: int, repeats: int, shards = 1) -> "
        "dw",
    .doc =
        "Gradient of repeat_kv: for every row the sum over its copies in dy, in order; 0 for rows "
        "that only other shards have.",
    .traits = {.differentiable = false, .linear = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      const Heads heads = heads_of(call);
      require_coordinate(call);
      return {with_heads(call, "dy", heads.repeated(), heads.packed())};
    },
    .cost = [](const Call& call) { return per_operand_element(call, "dy", 1); },
    .sharding_of =
        [](const Call& call) {
          return cat(repeated_rows(call, "dy", heads_of(call).repeated()), "c, -> Hc");
        },
    .located = 'h',
    .localize =
        [](const Call& call, Call& local) {
          localize_shards(local, call.operands.at(0).shape[0], local.operands.at(0).shape[0]);
        },
    .samples =
        "dy: f32[16,5]; heads=4, kv_heads=1, repeats=2 | dy: bf16[36,3]; heads=6, kv_heads=2, "
        "repeats=3 | dy: f32[12,5], coordinate: i32[]; heads=6, kv_heads=3, repeats=2, shards=3 | "
        "dy: f32[256,67], coordinate: i32[]; heads=12, kv_heads=3, repeats=2, shards=3",
};

}  // namespace weft

// The ops of a training step outside the layers: embedding, loss, accumulation, gradient norm,
// clipping and the update.
#include "base/exact_sum.h"
#include "base/tree_level.h"
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

void require_ids(const Call& call) {
  const TensorType& ids = call.type("ids");
  call.require(ids.dtype == DType::I32, "ids is ", ids, ", expected i32");
}

// The number of the shard that the operands hold.
void require_coordinate(const Call& call) {
  if (call.has_operand("coordinate")) require_type(call, "coordinate", DType::I32, {});
}

std::vector<TensorType> infer_embedding(const Call& call) {
  require_ids(call);
  require_coordinate(call);
  require_floating(call, "w", 2);
  const TensorType& w = call.type("w");
  call.require(w.shape.size() == 2, "w is ", w, ", expected two dims");
  return {{w.dtype, append_dim(call.type("ids").shape, w.shape[1]), {}}};
}

std::vector<TensorType> infer_embedding_grad(const Call& call) {
  require_ids(call);
  require_coordinate(call);
  require_floating(call, "dy", 1);
  const TensorType& dy = call.type("dy");
  require_floating(call, "dy", append_dim(call.type("ids").shape, row_length(dy)));
  const int64_t rows = call.int_attr("rows");
  call.require(rows > 0, "rows is ", rows, ", expected a positive number");
  return {{out_dtype(call, dy.dtype), {rows, row_length(dy)}, {}}};
}

std::vector<TensorType> infer_add_positions(const Call& call) {
  require_floating(call, "x", 3);
  const TensorType& x = call.type("x");
  const TensorType& w = call.type("w");
  call.require(x.shape.size() == 3, "x is ", x, ", expected [batch,time,width]");
  call.require(w.dtype == x.dtype && w.shape.size() == 2 && w.shape[1] == x.shape[2] &&
                   w.shape[0] >= x.shape[1],
               "w is ", w, ", expected ", dtype_name(x.dtype), " with ", x.shape[1],
               " or more rows of ", x.shape[2]);
  if (call.has_operand("coordinate")) require_type(call, "coordinate", DType::I32, {});
  return {x};
}

std::vector<TensorType> infer_add_positions_grad(const Call& call) {
  require_floating(call, "dy", 3);
  const TensorType& dy = call.type("dy");
  const int64_t rows = call.int_attr("rows");
  call.require(dy.shape.size() == 3, "dy is ", dy, ", expected [batch,time,width]");
  call.require(rows >= dy.shape[1], "rows is ", rows, ", expected ", dy.shape[1], " or more");
  if (call.has_operand("coordinate")) require_type(call, "coordinate", DType::I32, {});
  return {{out_dtype(call, dy.dtype), {rows, dy.shape[2]}, {}}};
}

std::vector<TensorType> infer_cross_entropy(const Call& call) {
  require_floating(call, "logits", 1);
  const TensorType& logits = call.type("logits");
  require_type(call, "targets", DType::I32, leading_dims(logits));
  require_type(call, "count", DType::F32, {});
  return {{stat_dtype(logits), {}, {}}, {stat_dtype(logits), leading_dims(logits), {}}};
}

std::vector<TensorType> infer_cross_entropy_grad(const Call& call) {
  require_floating(call, "logits", 1);
  const TensorType& logits = call.type("logits");
  require_type(call, "dloss", stat_dtype(logits), {});
  require_type(call, "targets", DType::I32, leading_dims(logits));
  require_type(call, "lse", stat_dtype(logits), leading_dims(logits));
  require_type(call, "count", DType::F32, {});
  require_coordinate(call);
  const int64_t classes = call.int_attr("classes");
  call.require(!call.has_operand("coordinate") || classes >= row_length(logits), "classes is ",
               classes, ", expected ", row_length(logits), " or more");
  return {logits};
}

std::vector<TensorType> infer_accumulate(const Call& call) {
  const TensorType& acc = call.type("acc");
  call.require(acc.dtype == DType::F32 || acc.dtype == DType::F64, "acc is ", acc,
               ", expected f32 or f64");
  require_floating(call, "g", acc.shape);
  require_type(call, "micro", DType::I32, {});
  const int64_t level = call.int_attr("level");
  call.require(level >= -1 && level < kMaxTreeLevels, "level is ", level, ", expected -1 to ",
               kMaxTreeLevels - 1);
  return {acc};
}

std::vector<TensorType> infer_adamw(const Call& call) {
  const TensorType& w = call.type("w");
  call.require(w.dtype == DType::F32 || w.dtype == DType::F64, "w is ", w, ", expected f32 or f64");
  require_floating(call, "g", w.shape);
  require_type(call, "m", w.dtype, w.shape);
  require_type(call, "v", w.dtype, w.shape);
  require_type(call, "lr", DType::F32, {});
  require_type(call, "coefficient", DType::F32, {});
  require_type(call, "count", DType::I32, {});
  std::vector<TensorType> results = {w, w, w};
  if (call.op == &kAdamwCast) {
    const TensorType& low = call.type("low");
    call.require((low.dtype == DType::BF16 || low.dtype == DType::F16) && low.shape == w.shape,
                 "low is ", low, ", expected bf16 or f16 ", to_string(w.shape));
    results.push_back(low);
  }
  require_coordinate(call);
  const std::vector<int64_t>& decayed = call.ints_attr("decayed");
  bool in_order = decayed.size() % 2 == 0;
  int64_t last = -1;
  for (const int64_t bound : decayed) {
    in_order = in_order && bound > last && bound % kFlatBlock == 0;
    last = bound;
  }
  call.require(in_order, "decayed is ", to_string(decayed),
               ", expected increasing begin,end pairs that are multiples of ", kFlatBlock);
  return results;
}

}  // namespace

constinit const OpDef kEmbedding{
    .signature = "embedding(ids, w, coordinate?) -> y",
    .doc =
        "y[..., :] = w[ids[...], :]; the result for an id outside the table is undefined. With a "
        "coordinate, w holds the R rows from coordinate * R on of a larger table, and the result "
        "for an id outside of them is 0.",
    .infer = infer_embedding,
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      Value* dy = only_grad(v);
      std::vector<Value*> operands = {v.operand("ids"), dy};
      Value* coordinate = v.operand("coordinate");
      if (coordinate != nullptr) operands.push_back(coordinate);
      Node* dw = v.add(
          kEmbeddingGrad, operands,
          {{"rows", v.operand("w")->type.shape[0]}, {"out", grad_out(v, "w", dy->type.dtype)}},
          "w");
      std::vector<Value*> grads = {nullptr, dw->result()};
      grads.resize(v.node().operands.size(), nullptr);
      return grads;
    },
    // Only the selected rows are read.
    .cost =
        [](const Call& call) {
          return Cost{.bytes = static_cast<double>(call.type("ids").bytes()) +
                               2 * static_cast<double>(call.results.at(0).bytes())};
        },
    .sharding = "..., vc, -> ...c",
    .located = 'v',
    .samples =
        "ids: i32[2,3], w: f32[7,5] | ids: i32[9], w: f32[3,4] | "
        "ids: i32[1,5], w: bf16[6,3] | "
        "ids: i32[4,131], w: f32[67,67] | "
        "ids: i32[2,9], w: f32[7,5], coordinate: i32[] | "
        "ids: i32[11], w: bf16[4,3], coordinate: i32[]",
};

constinit const OpDef kEmbeddingGrad{
    .signature = "embedding_grad(ids, dy, coordinate?; rows: int, out = \"\") -> dw",
    .doc =
        "dw[id, :] = sum of dy over the positions that hold id, in order of position. `out` names "
        "the dtype of dw; if it is empty, that is the dtype of dy. With a coordinate, row r of dw "
        "is "
        "that of id coordinate * rows + r, and ids without a row are left out.",
    .traits = {.differentiable = false, .linear = true},
    .infer = infer_embedding_grad,
    .cost = [](const Call& call) { return per_operand_element(call, "dy", 1); },
    .sharding = "..., ...c, -> vc",
    .located = 'v',
    .localize =
        [](const Call& call, Call& local) {
          local.attrs.at(call.op->parsed().attr_index("rows")) = local.results.at(0).shape.at(0);
        },
    .samples =
        "ids: i32[2,3], dy: f32[2,3,5]; rows=7 | ids: i32[29], dy: f32[29,3]; rows=4 | "
        "ids: i32[2,5], dy: bf16[2,5,3]; rows=6, out=\"f32\" | "
        "ids: i32[4,131], dy: f32[4,131,67]; rows=67 | "
        "ids: i32[2,9], dy: f32[2,9,5], coordinate: i32[]; rows=7 | "
        "ids: i32[29], dy: bf16[29,3], coordinate: i32[]; rows=4, out=\"f32\" | "
        "ids: i32[4,131], dy: f32[4,131,67], coordinate: i32[]; rows=67",
};

constinit const OpDef kAddPositions{
    .signature = "add_positions(x, w, coordinate?) -> y",
    .doc =
        "y[b, t, :] = x[b, t, :] + w[t, :]: learned positions; w may have more rows than x has "
        "positions. With a coordinate, x holds the T positions from coordinate * T on of longer "
        "sequences.",
    .traits = {.in_place = true},
    .infer = infer_add_positions,
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      Value* dy = only_grad(v);
      std::vector<Value*> operands = {dy};
      Value* coordinate = v.operand("coordinate");
      if (coordinate != nullptr) operands.push_back(coordinate);
      Node* dw = v.add(
          kAddPositionsGrad, operands,
          {{"rows", v.operand("w")->type.shape[0]}, {"out", grad_out(v, "w", dy->type.dtype)}},
          "w");
      std::vector<Value*> grads = {dy, dw->result()};
      grads.resize(v.node().operands.size(), nullptr);
      return grads;
    },
    .cost = [](const Call& call) { return per_element(call, 1); },
    .sharding = "bsc, Rc, -> bsc",
    .located = 's',
    .samples =
        "x: f32[2,3,5], w: f32[4,5] | x: f32[3,2,7], w: f32[2,7] | "
        "x: f32[2,3,5], w: f32[13,5], coordinate: i32[] | "
        "x: bf16[1,5,3], w: bf16[8,3] | "
        "x: f32[3,131,67], w: f32[140,67]",
};

constinit const OpDef kAddPositionsGrad{
    .signature = "add_positions_grad(dy, coordinate?; rows: int, out = \"\") -> dw",
    .doc =
        "dw[t, :] = sum of dy[b, t, :] over b in order, zero for t outside dy. `out` names the "
        "dtype of dw; if it is empty, that is the dtype of dy. With a coordinate, dy holds the T "
        "positions from coordinate * T on.",
    .traits = {.differentiable = false, .linear = true},
    .infer = infer_add_positions_grad,
    .cost = [](const Call& call) { return per_operand_element(call, "dy", 1); },
    .sharding = "bsc, -> Rc",
    .located = 's',
    .samples =
        "dy: f32[2,3,5]; rows=4 | dy: f32[3,2,7]; rows=2 | "
        "dy: f32[2,3,5], coordinate: i32[]; rows=13 | "
        "dy: bf16[4,5,3]; rows=8, out=\"f32\" | "
        "dy: f32[9,131,67]; rows=140",
};

constinit const OpDef kCrossEntropy{
    .signature = "cross_entropy(logits, targets, count) -> loss, lse",
    .doc =
        "loss = sum over rows of (lse - logits[target]) / count, where lse is the log of the sum "
        "of exponentials; rows with a negative target contribute nothing. lse is kept for the "
        "gradient.",
    .infer = infer_cross_entropy,
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      Node* node = v.add(kCrossEntropyGrad,
                         {only_grad(v), v.operand("logits"), v.operand("targets"), v.result("lse"),
                          v.operand("count")},
                         {}, "logits");
      return {node->result(), nullptr, nullptr};
    },
    .cost = [](const Call& call) { return per_operand_element(call, "logits", 6); },
    .sharding = "...V, ..., -> , ...",
    .samples =
        "logits: f32[2,3,7], targets: i32[2,3], count: f32[] | "
        "logits: f32[17,5], targets: i32[17], count: f32[] | "
        "logits: bf16[5,9], targets: i32[5], count: f32[] | "
        "logits: f32[3,131,259], targets: i32[3,131], count: f32[]",
};

constinit const OpDef kCrossEntropyGrad{
    .signature =
        "cross_entropy_grad(dloss, logits, targets, lse, count, coordinate?; classes = 0) -> "
        "dlogits",
    .doc =
        "dlogits = (softmax(logits) - onehot(target)) * dloss / count; zero in rows with a "
        "negative target. With a coordinate, the logits are a shard of `classes` columns as in "
        "cross_entropy_stats, and the gradient of padding is zero.",
    .traits = {.in_place = true, .differentiable = false},
    .infer = infer_cross_entropy_grad,
    .cost = [](const Call& call) { return per_element(call, 6); },
    .sharding = ", ...v, ..., ..., , -> ...v",
    .located = 'v',
    .samples =
        "dloss: f32[], logits: f32[2,3,7], targets: i32[2,3], lse: f32[2,3], count: f32[] | "
        "dloss: f32[], logits: f32[17,5], targets: i32[17], lse: f32[17], count: f32[] | "
        "dloss: f32[], logits: bf16[5,9], targets: i32[5], lse: f32[5], count: f32[] | "
        "dloss: f32[], logits: f32[3,131,259], targets: i32[3,131], lse: f32[3,131], count: f32[] "
        "| dloss: f32[], logits: f32[2,3,7], targets: i32[2,3], lse: f32[2,3], count: f32[], "
        "coordinate: i32[]; classes=19 | "
        "dloss: f32[], logits: bf16[17,5], targets: i32[17], lse: f32[17], count: f32[], "
        "coordinate: i32[]; classes=9 | "
        "dloss: f32[], logits: bf16[6,16], targets: i32[6], lse: f32[6], count: f32[], "
        "coordinate: i32[]; classes=37",
};

constinit const OpDef kAccumulate{
    .signature = "accumulate(acc, g, micro; level = -1) -> sum",
    .doc =
        "Gradient accumulation in place: acc = g in micro-batch 0, acc += g in later ones. With a "
        "level it is one level of a binary tree over the micro-batches: if the bits of micro below "
        "the level are all ones, acc = g or, if the bit of the level is one, acc += g; otherwise "
        "acc does not change. In a chain of levels starting at 0, each level sums the results of "
        "the previous one, and after 2^n micro-batches the n-th holds the tree sum.",
    .traits = {.effect = true, .differentiable = false, .linear = true},
    .overwrites = "sum<-acc",
    .infer = infer_accumulate,
    .cost = [](const Call& call) { return per_element(call, 1); },
    .sharding = "..., ..., -> ...",
    .samples =
        "acc: f32[3,5], g: f32[3,5], micro: i32[] | acc: f32[1030], g: bf16[1030], "
        "micro: i32[] | "
        "acc: f32[41,1031], g: f32[41,1031], micro: i32[] | "
        "acc: f32[7], g: f32[7], micro: i32[]; level=0 | "
        "acc: f32[1030], g: bf16[1030], micro: i32[]; level=1",
};

constinit const OpDef kSquareSum{
    .signature = "square_sum(g...) -> acc",
    .doc =
        "Exact sum of squares over all operands: each block of 1024 elements of a tensor is one "
        "f32 tree sum, and block values are added as integers. Word k of acc counts units of 2^(32 "
        "k - 160); the last word counts values that are not finite. The words of shards add up to "
        "those of the full tensors, in any order.",
    .traits = {.differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      call.require(!call.operands.empty(), "no operands, expected one or more");
      for (size_t i = 0; i < call.operands.size(); ++i) require_floating(call, i);
      return {{DType::I64, {kExactSumWords}, {}}};
    },
    .cost =
        [](const Call& call) {
          Cost cost;
          for (const TensorType& g : call.operands) {
            cost.flops += 2 * static_cast<double>(g.elements());
          }
          return cost;
        },
    .sharding = "...+ -> W",
    .samples =
        "g: f32[3,7] | g: f32[1024], g: f32[5,411], g: f32[] | g: bf16[1500], g: f32[3] | "
        "g: f32[41,1031], g: f32[259,259]",
};

constinit const OpDef kNorm{
    .signature = "norm(acc, scale?) -> norm",
    .doc =
        "The square root of the result of square_sum, divided by `scale`: the Euclidean norm, or "
        "NaN if a value was not finite.",
    .traits = {.differentiable = false},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_type(call, "acc", DType::I64, {kExactSumWords});
      if (call.has_operand("scale")) require_type(call, "scale", DType::F32, {});
      return {{DType::F32, {}, {}}};
    },
    .cost = [](const Call& call) { return per_element(call, 1); },
    .sharding = "W, -> ",
    .samples = "acc: i64[12] | acc: i64[12], scale: f32[]",
};

constinit const OpDef kClip{
    .signature = "clip(norm, count, scale?; max_norm = 0.0) -> coefficient, count2",
    .doc =
        "coefficient = min(1, max_norm / (norm + 1e-6)), or 1 if max_norm is 0, divided by "
        "`scale`, the scale of the gradients; increments the update count in place. A norm that is "
        "negative or not finite gives coefficient 0, which means no update, and does not change "
        "the count.",
    .traits = {.effect = true, .differentiable = false},
    .overwrites = "count2<-count",
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_type(call, "norm", DType::F32, {});
      require_type(call, "count", DType::I32, {});
      if (call.has_operand("scale")) require_type(call, "scale", DType::F32, {});
      const double max_norm = call.double_attr("max_norm");
      call.require(max_norm >= 0, "max_norm is ", format_double(max_norm), ", expected 0 or more");
      return {call.type("norm"), call.type("count")};
    },
    .cost = [](const Call& call) { return per_element(call, 3); },
    .sharding = ", , -> ,",
    .samples =
        "norm: f32[], count: i32[] | norm: f32[], count: i32[]; max_norm=0.5 | "
        "norm: f32[], count: i32[], scale: f32[]; max_norm=0.5",
};

constinit const OpDef kUpdateScale{
    .signature =
        "update_scale(scale, good, norm; growth = 2.0, backoff = 0.5, interval = 2000) -> scale2, "
        "good2",
    .doc =
        "Dynamic loss scaling in place. A finite norm is a good step; after `interval` of them in "
        "a row the scale grows by `growth`. A norm that is not finite shrinks it by `backoff`, not "
        "below 1. Both reset the count of good steps. A negative norm changes nothing.",
    .traits = {.effect = true, .differentiable = false},
    .overwrites = "scale2<-scale good2<-good",
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_type(call, "scale", DType::F32, {});
      require_type(call, "good", DType::I32, {});
      require_type(call, "norm", DType::F32, {});
      const double growth = call.double_attr("growth");
      const double backoff = call.double_attr("backoff");
      call.require(growth > 1, "growth is ", format_double(growth), ", expected more than 1");
      call.require(backoff > 0 && backoff < 1, "backoff is ", format_double(backoff),
                   ", expected 0 < backoff < 1");
      call.require(call.int_attr("interval") > 0, "interval is ", call.int_attr("interval"),
                   ", expected a positive number");
      return {call.type("scale"), call.type("good")};
    },
    .cost = [](const Call& call) { return per_element(call, 3); },
    .sharding = ", , -> ,",
    .samples =
        "scale: f32[], good: i32[], norm: f32[] | "
        "scale: f32[], good: i32[], norm: f32[]; growth=4, backoff=0.25, interval=3",
};

constinit const OpDef kAdamw{
    .signature =
        "adamw(w, g, m, v, lr, coefficient, count, coordinate?; beta1 = 0.9, beta2 = 0.95, "
        "eps = 1e-8, decay = 0.0, decayed = []) -> w2, m2, v2",
    .doc =
        "One AdamW update in place with decoupled decay, on g * coefficient, bias-corrected by "
        "count; coefficient 0 leaves w, m and v unchanged. `decayed` lists begin,end pairs of the "
        "elements with weight decay; empty means all. They are relative to the start of a flat "
        "tensor of which w is the equal shard number `coordinate`.",
    .traits = {.effect = true, .differentiable = false, .update = true},
    .overwrites = "w2<-w m2<-m v2<-v",
    .infer = infer_adamw,
    .cost = [](const Call& call) { return per_element(call, 14); },
    .sharding = "..., ..., ..., ..., , , , -> ..., ..., ...",
    .samples =
        "w: f32[3,7], g: f32[3,7], m: f32[3,7], v: f32[3,7], lr: f32[], coefficient: f32[], "
        "count: i32[]; decay=0.1 | w: f32[1029], g: bf16[1029], m: f32[1029], v: f32[1029], "
        "lr: f32[], coefficient: f32[], count: i32[]; beta2=0.99, eps=1e-6 | "
        "w: f32[41,1031], g: f32[41,1031], m: f32[41,1031], v: f32[41,1031], lr: f32[], "
        "coefficient: f32[], count: i32[]; decay=0.1 | w: f32[4096], g: f32[4096], m: f32[4096], "
        "v: f32[4096], lr: f32[], coefficient: f32[], count: i32[]; decay=0.1, "
        "decayed=[0,1024,3072,4096] | w: f32[3072], g: bf16[3072], m: f32[3072], v: f32[3072], "
        "lr: f32[], coefficient: f32[], count: i32[], coordinate: i32[]; decay=0.1, "
        "decayed=[1024,2048,4096,5120]",
};

constinit const OpDef kAdamwCast{
    .signature =
        "adamw_cast(w, g, m, v, lr, coefficient, count, low, coordinate?; beta1 = 0.9, "
        "beta2 = 0.95, eps = 1e-8, decay = 0.0, decayed = []) -> w2, m2, v2, low2",
    .doc =
        "adamw that also overwrites low with w2, rounded like cast; coefficient 0 leaves low "
        "unchanged too.",
    .traits = {.effect = true, .differentiable = false, .update = true},
    .overwrites = "w2<-w m2<-m v2<-v low2<-low",
    .infer = infer_adamw,
    // The old copy is not read.
    .cost =
        [](const Call& call) {
          Cost cost = per_element(call, 15);
          cost.bytes = -static_cast<double>(call.type("low").bytes());
          for (const auto* types : {&call.operands, &call.results}) {
            for (const TensorType& type : *types) cost.bytes += static_cast<double>(type.bytes());
          }
          return cost;
        },
    .sharding = "..., ..., ..., ..., , , , ..., -> ..., ..., ..., ...",
    .samples =
        "w: f32[3,7], g: f32[3,7], m: f32[3,7], v: f32[3,7], lr: f32[], coefficient: f32[], "
        "count: i32[], low: bf16[3,7]; decay=0.1 | w: f32[1029], g: bf16[1029], m: f32[1029], "
        "v: f32[1029], lr: f32[], coefficient: f32[], count: i32[], low: bf16[1029]; beta2=0.99, "
        "eps=1e-6 | w: f32[41,1031], g: f32[41,1031], m: f32[41,1031], v: f32[41,1031], lr: f32[], "
        "coefficient: f32[], count: i32[], low: bf16[41,1031]; decay=0.1 | w: f32[3072], "
        "g: bf16[3072], m: f32[3072], v: f32[3072], lr: f32[], coefficient: f32[], count: i32[], "
        "low: bf16[3072], coordinate: i32[]; decay=0.1, decayed=[1024,2048,4096,5120]",
};

}  // namespace weft

// The loss of logits whose columns are sharded: statistics of each shard, and the loss from those
// of all shards.
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

// Largest logit, sum of exponentials, logit of the target.
constexpr int64_t kStats = 3;

std::vector<TensorType> infer_stats(const Call& call) {
  require_floating(call, "logits", 1);
  const TensorType& logits = call.type("logits");
  require_type(call, "targets", DType::I32, leading_dims(logits));
  require_type(call, "coordinate", DType::I32, {});
  const int64_t classes = call.int_attr("classes");
  call.require(classes >= row_length(logits), "classes is ", classes, ", expected ",
               row_length(logits), " or more");
  const int64_t shards = call.int_attr("shards");
  call.require(shards > 0, "shards is ", shards, ", expected a positive number");
  Shape shape = {shards};
  for (const int64_t dim : leading_dims(logits)) shape.push_back(dim);
  return {{stat_dtype(logits), append_dim(shape, kStats), {}}};
}

std::vector<TensorType> infer_combine(const Call& call) {
  require_floating(call, "stats", 2);
  const TensorType& stats = call.type("stats");
  call.require(stats.dtype == stat_dtype(stats) && row_length(stats) == kStats, "stats is ", stats,
               ", expected f32 or f64 [shards,...,", kStats, "]");
  const Shape rows(stats.shape.begin() + 1, stats.shape.end() - 1);
  require_type(call, "targets", DType::I32, rows);
  require_type(call, "count", DType::F32, {});
  return {{stats.dtype, {}, {}}, {stats.dtype, rows, {}}};
}

// A letter for each dim of the targets. "..." would not do: these dims come second in the
// statistics.
std::string row_dims(const Call& call) {
  std::string names = "abcdefgh";
  const size_t rank = call.type("targets").shape.size();
  call.require(rank <= names.size(), "more dims than a sharding rule can name");
  names.resize(rank);
  return names;
}

}  // namespace

constinit const OpDef kCrossEntropyStats{
    .signature =
        "cross_entropy_stats(logits, targets, coordinate; classes: int, shards: int) -> stats",
    .doc =
        "What one shard of the logits contributes to cross_entropy: per row the largest logit, the "
        "sum of exp(logit - largest), and the logit of the target, or 0 if another shard has it. A "
        "shard has n columns, from coordinate * n on; those from `classes` on are padding.",
    .traits = {.differentiable = false},
    .infer = infer_stats,
    .cost = [](const Call& call) { return per_operand_element(call, "logits", 6); },
    .sharding_of =
        [](const Call& call) {
          const std::string rows = row_dims(call);
          return cat(rows, "v, ", rows, ", -> v", rows, "W");
        },
    .localize =
        [](const Call& call, Call& local) {
          local.attrs.at(call.op->parsed().attr_index("shards")) = local.results.at(0).shape.at(0);
        },
    .samples =
        "logits: f32[2,3,7], targets: i32[2,3], coordinate: i32[]; classes=19, shards=1 | "
        "logits: f32[17,5], targets: i32[17], coordinate: i32[]; classes=9, shards=1 | "
        "logits: bf16[6,16], targets: i32[6], coordinate: i32[]; classes=37, shards=1 | "
        "logits: f32[3,131,259], targets: i32[3,131], coordinate: i32[]; classes=700, shards=1",
};

constinit const OpDef kCrossEntropyCombine{
    .signature = "cross_entropy_combine(stats, targets, count) -> loss, lse",
    .doc =
        "The results of cross_entropy from the cross_entropy_stats of all shards, which are added "
        "in order.",
    .traits = {.differentiable = false},
    .infer = infer_combine,
    .cost = [](const Call& call) { return per_operand_element(call, "stats", 3); },
    .sharding_of =
        [](const Call& call) {
          const std::string rows = row_dims(call);
          return cat("R", rows, "W, ", rows, ", -> , ", rows);
        },
    .samples =
        "stats: f32[2,2,3,3], targets: i32[2,3], count: f32[] | "
        "stats: f32[1,17,3], targets: i32[17], count: f32[] | "
        "stats: f32[8,5,3], targets: i32[5], count: f32[] | "
        "stats: f32[4,3,131,3], targets: i32[3,131], count: f32[]",
};

}  // namespace weft

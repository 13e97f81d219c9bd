// Merges collectives so that each moves enough bytes to amortize its latency: the parameters of a
// group become one flat buffer, gathered, reduced, accumulated and updated by one node each.
// Results stay bit-identical because sums over ranks are elementwise. A bucket that the backward
// would gather again right after its last use is kept instead.
//
//   %a = bucket ["layers.0.a"] : f32[1024] @F(dp_shard)
//   %a.full = all_gather(%a; axis="dp_shard", types=["bf16[8,8]"]) : bf16[8,8]  # layers.0 fwd
//   %b = bucket ["layers.0.b"] : f32[1024] @F(dp_shard)
//   %b.full = all_gather(%b; axis="dp_shard", types=["bf16[8,4]"]) : bf16[8,4]  # layers.0 fwd
// becomes
//   %a = bucket ["layers.0.a", "layers.0.b"] : f32[2048] @F(dp_shard)
//   %a.full, %b.full = all_gather(%a; axis="dp_shard", types=["bf16[8,8]", "bf16[8,4]"]) : ...
#include "base/error.h"
#include "base/text.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"
#include "passes/bucket_auto.h"
#include "passes/bucket_gathers.h"
#include "passes/bucket_merge.h"
#include "passes/pass.h"

namespace weft {

namespace {

BucketPlan make_plan(const Graph& graph, const std::vector<ParamLane>& lanes,
                     const PassContext& context) {
  std::vector<BucketItem> items;
  for (const ParamLane& lane : lanes) items.push_back(lane.item);
  if (!context.buckets.empty()) return plan_as_given(items, context.buckets);
  const CompileConfig& compile = context.config.compile;
  switch (compile.bucketing) {
    case BucketingMode::None:
      return plan_each_alone(items);
    case BucketingMode::TransformerBlock:
      return plan_by_block(items);
    case BucketingMode::Size:
      return plan_by_size(items, compile.bucket_min_parameters);
    case BucketingMode::Manual:
      return plan_by_hand(items, context.config);
    case BucketingMode::Auto:
      return plan_automatically(graph, lanes, context);
  }
  throw InternalError("unknown bucketing mode");
}

bool run(Graph& graph, PassContext& context) {
  const std::vector<ParamLane> lanes = find_lanes(graph);
  if (lanes.empty()) {
    context.note = "no parameter is communicated";
    return false;
  }
  const BucketPlan plan = make_plan(graph, lanes, context);
  const MergeSummary summary = merge_lanes(graph, lanes, plan);
  const bool may_keep =
      context.config.parallelism.fsdp_reshard_after_forward == ReshardPolicy::Default;
  const size_t kept = may_keep ? reuse_fresh_gathers(graph) : 0;
  context.note = cat(lanes.size(), " parameters in ", summary.buckets, " buckets, the largest of ",
                     human_count(static_cast<double>(summary.largest)), " from ",
                     summary.largest_name, plan.note.empty() ? "" : "; ", plan.note);
  if (kept > 0) context.note += cat("; ", kept, " kept for the backward");
  return summary.merged > 0 || kept > 0;
}

}  // namespace

Buckets buckets_of(const Graph& graph) {
  Buckets buckets;
  for (const auto& node : graph.order()) {
    if (node->op != &kBucket) continue;
    buckets.push_back(stored_params(*node));
  }
  return buckets;
}

constexpr Pass bucket{
    .name = "bucket",
    .doc =
        "Merges collectives: the parameters of a group, by compile.bucketing, are gathered, "
        "reduced, accumulated and updated together. A parameter is never split, and members are "
        "stored in order of registration. A bucket that the backward would gather again "
        "immediately is kept, unless parallelism.fsdp_reshard_after_forward is always. The bits do "
        "not change.",
    .needs = {},
    .gives = {},
    .run = run,
};

}  // namespace weft

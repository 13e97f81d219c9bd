// Overlaps collectives with compute: each becomes a start and a wait. Gathers start
// compile.prefetch buckets ahead of their use. Reductions are waited for after a later one has
// started, or in the update. Compute keeps its order, so results stay bit-identical.
//
//   %a.full = all_gather(%a; axis="dp_shard", types=["f32[8,8]"]) : f32[8,8]  # layers.0 fwd
//   %y = matmul(%x, %a.full) : f32[4,8]  # layers.0 fwd
//   %b.full = all_gather(%b; axis="dp_shard", types=["f32[8,8]"]) : f32[8,8]  # layers.1 fwd
//   %z = matmul(%y, %b.full) : f32[4,8]  # layers.1 fwd
// becomes
//   %a.full.start = all_gather_start(%a; ...) : future<f32[8,8]>  # layers.0 fwd
//   %b.full.start = all_gather_start(%b; ...) : future<f32[8,8]>  # layers.1 fwd
//   %a.full = wait(%a.full.start) : f32[8,8]  # layers.0 fwd
//   %y = matmul(%x, %a.full) : f32[4,8]  # layers.0 fwd
//   %b.full = wait(%b.full.start) : f32[8,8]  # layers.1 fwd
//   %z = matmul(%y, %b.full) : f32[4,8]  # layers.1 fwd
#include "base/text.h"
#include "passes/overlap_schedule.h"
#include "passes/pass.h"

namespace weft {

namespace {

bool run(Graph& graph, PassContext& context) {
  if (!context.config.compile.overlap) {
    context.note = "compile.overlap is false";
    return false;
  }
  const size_t collectives = split_collectives(graph);
  if (collectives == 0) {
    context.note = "no collectives";
    return false;
  }
  const Schedule schedule = choose_schedule(graph, context);
  for (Node* node : schedule.order) graph.move_before(node, nullptr);
  context.note = cat(
      collectives, " collectives, gathers ", schedule.prefetch,
      schedule.prefetch == 1 ? " bucket ahead" : " buckets ahead",
      schedule.held > 0
          ? cat(", ", schedule.held, " moved less far: not enough memory on ", context.device.name)
          : std::string());
  return true;
}

}  // namespace

constexpr Pass overlap{
    .name = "overlap",
    .doc =
        "Turns each collective into a start and a wait. Gathers start compile.prefetch buckets "
        "ahead, or fewer if memory is short; waits for reductions move down. Compute keeps its "
        "order, and the bits do not change.",
    .needs = {},
    .gives = {},
    .run = run,
};

}  // namespace weft

// Inserts reductions into a graph.
#include "passes/reduction.h"

#include "base/error.h"
#include "graph/builder.h"
#include "graph/ops/ops.h"

namespace weft {

Value* all_reduce(Graph& graph, Value* value, Node* before, const NodeOptions& options) {
  CHECK(is_partial(value->type), "%", value->name, " is ", to_string(value->type));
  Builder builder(graph, before);
  builder.set_path(options.path);
  builder.set_phase(options.phase);
  const std::string name = value->name + ".reduced";
  const std::vector<MeshAxis> axes = graph.mesh().axes;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const AxisPlacement* placement = placement_over(value->type, axis->name);
    if (placement == nullptr || placement->kind != PlacementKind::Partial) continue;
    Node* node = builder.add(kAllReduce, {value}, {{"axis", axis->name}}, name);
    graph.replace_uses(value, node->result(), node);
    value = node->result();
  }
  return value;
}

}  // namespace weft

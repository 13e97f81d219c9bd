#include "passes/redistribution.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "graph/builder.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"

namespace weft {

namespace {

Builder builder_at(Graph& graph, Node* before, const Node& like) {
  Builder builder(graph, before);
  builder.set_path(like.path);
  builder.set_phase(like.phase);
  return builder;
}

// Whether shards over the entry's axis could lie along `dim` instead: those over a later axis would
// be inside them, and their ranges would not be contiguous.
bool may_be_sharded(const TensorType& type, const AxisPlacement& entry, int64_t dim) {
  const auto own = std::find(type.placement.begin(), type.placement.end(), entry);
  return std::none_of(own + 1, type.placement.end(), [&](const AxisPlacement& later) {
    return later.kind == PlacementKind::Sharded && later.dim == dim;
  });
}

}  // namespace

Value* all_reduce(Graph& graph, Value* value, Node* before, const NodeOptions& options) {
  CHECK(is_partial(value->type), "%", value->name, " is ", to_string(value->type));
  Builder builder(graph, before);
  builder.set_path(options.path);
  builder.set_phase(options.phase);
  std::vector<std::string> axes;
  for (const MeshAxis& axis : graph.mesh().all_axes()) {
    const AxisPlacement* placement = placement_over(value->type, axis.name);
    if (placement == nullptr || placement->kind != PlacementKind::Partial) continue;
    axes.push_back(axis.name);
  }
  Node* node =
      builder.add(kAllReduce, {value}, {{"axis", join(axes, "+")}}, value->name + ".reduced");
  graph.replace_uses(value, node->result(), node);
  return node->result();
}

Value* coordinate_input(Graph& graph, const std::string& axis) {
  const std::string name = names::coordinate(axis);
  if (Value* known = find_input(graph, name)) return known;
  return graph
      .insert_source(graph.order().front().get(), kInput, name, TensorType{DType::I32, {}, {}},
                     {.name = name})
      ->result();
}

Value* Redistribution::reduce(Value* value, const std::string& axis, std::optional<int64_t> dim) {
  Node* def = value->def;
  Builder builder = builder_at(graph_, graph_.next(def), *def);
  Node* node = dim ? builder.add(kReduceScatter, {value}, {{"axis", axis}, {"dim", *dim}},
                                 value->name + ".shard")
                   : builder.add(kAllReduce, {value}, {{"axis", axis}}, value->name + ".reduced");
  graph_.replace_uses(value, node->result(), node);
  ++reductions_;
  return node->result();
}

Value* Redistribution::reduce_all(Value* value) {
  Node* def = value->def;
  ++reductions_;
  return all_reduce(graph_, value, graph_.next(def), {.path = def->path, .phase = def->phase});
}

Value* Redistribution::move(Value* value, const std::string& axis, std::optional<int64_t> dim,
                            Node* reader) {
  const AxisPlacement* entry = placement_over(value->type, axis);
  CHECK(entry == nullptr || entry->kind == PlacementKind::Sharded, "%", value->name, " is ",
        to_string(value->type));
  if (entry == nullptr ? !dim : dim == entry->dim) return value;
  if (entry != nullptr && dim && may_be_sharded(value->type, *entry, *dim)) {
    return exchange(value, axis, *dim, reader);
  }
  if (entry != nullptr) value = gather(value, axis, reader);
  return dim ? take(value, axis, *dim, reader) : value;
}

Value* Redistribution::exchange(Value* value, const std::string& axis, int64_t dim, Node* reader) {
  Value*& moved = moved_[{value->name, axis, dim}];
  if (moved == nullptr) {
    const int64_t from = placement_over(value->type, axis)->dim;
    moved = builder_at(graph_, reader, *reader)
                .add(kAllToAll, {value}, {{"axis", axis}, {"from", from}, {"to", dim}},
                     value->name + ".moved")
                ->result();
    ++exchanges_;
  }
  return moved;
}

Value* Redistribution::gather(Value* value, const std::string& axis, Node* reader) {
  Value*& full = moved_[{value->name, axis, -1}];
  if (full == nullptr) {
    const int64_t dim = placement_over(value->type, axis)->dim;
    full = builder_at(graph_, reader, *reader)
               .add(kAllGather, {value}, {{"axis", axis}, {"dim", dim}}, value->name + ".full")
               ->result();
    ++gathers_;
  }
  return full;
}

Value* Redistribution::take(Value* value, const std::string& axis, int64_t dim, Node* reader) {
  Value*& part = moved_[{value->name, axis, dim}];
  if (part == nullptr) {
    Value* coordinate = coordinate_input(graph_, axis);
    part = builder_at(graph_, reader, *reader)
               .add(kTakeShard, {value, coordinate}, {{"axis", axis}, {"dim", dim}},
                    value->name + ".part")
               ->result();
  }
  return part;
}

}  // namespace weft

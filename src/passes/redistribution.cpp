#include "passes/redistribution.h"

#include <algorithm>
#include <unordered_map>

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

// The operand of that name, or nullptr.
Value* find_operand(const Node& node, std::string_view name) {
  const auto& specs = node.op->parsed().operands;
  for (size_t i = 0; i < std::min(specs.size(), node.operands.size()); ++i) {
    if (specs[i].name == name) return node.operands[i];
  }
  return nullptr;
}

// The offsets of the rows that an all_to_all moves, which lie where the rows do; nullptr if it
// moves other tensors.
Value* offsets_of(const Node& exchange) {
  const Node& def = *exchange.operands.front()->def;
  if (Value* offsets = find_operand(def, "offsets")) return offsets;
  const Value* at = find_operand(def, "at");
  return at != nullptr && at->def->op == &kRoute ? at->def->result("offsets") : nullptr;
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

void Redistribution::finish_exchanges() {
  if (exchanges_ == 0) return;
  merge_exchanges();
  for (Node* node : graph_.nodes()) {
    Value* offsets = node->op == &kAllToAll ? offsets_of(*node) : nullptr;
    if (offsets == nullptr) continue;
    graph_.append_operand(node, offsets);
    graph_.set_attr(node, "bounded", true);
  }
}

void Redistribution::merge_exchanges() {
  std::unordered_map<const Node*, int64_t> position = positions(graph_);
  const auto change_alike = [](const Node& a, const Node& b) {
    return a.attrs == b.attrs && a.phase == b.phase && a.path == b.path;
  };
  Node* last = nullptr;
  for (Node* node : graph_.nodes()) {
    if (node->op != &kAllToAll) continue;
    const bool joins =
        last != nullptr && change_alike(*last, *node) &&
        std::all_of(node->operands.begin(), node->operands.end(), [&](const Value* operand) {
          return position.at(operand->def) < position.at(last);
        });
    if (!joins) {
      last = node;
      continue;
    }
    Node* merged = merge(last, node);
    position[merged] = position.at(last);
    graph_.erase(last);
    graph_.erase(node);
    last = merged;
    --exchanges_;
  }
}

// One node before the first, whose results take the place of those of both.
Node* Redistribution::merge(Node* first, Node* second) {
  std::vector<Value*> operands = first->operands;
  operands.insert(operands.end(), second->operands.begin(), second->operands.end());
  std::vector<Value*> moved;
  for (Node* node : {first, second}) {
    for (const auto& value : node->results) moved.push_back(value.get());
  }
  std::vector<std::string> result_names;
  for (Value* value : moved) {
    result_names.push_back(value->name);
    graph_.rename(value, value->name + ".alone");
  }
  Node* merged = graph_.insert(
      first, kAllToAll, std::move(operands), first->attrs,
      {.path = first->path, .phase = first->phase, .result_names = std::move(result_names)});
  for (size_t i = 0; i < moved.size(); ++i) graph_.replace_uses(moved[i], merged->result(i));
  return merged;
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

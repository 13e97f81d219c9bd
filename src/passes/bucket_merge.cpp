// Merges node by node. Merged sources and gathers take the place of the first, all others that of
// the last, which keeps definitions before uses. New values take the names of the first lane;
// gathered tensors keep their own.
#include "passes/bucket_merge.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "graph/flat.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"
#include "passes/bucket_gathers.h"

namespace weft {

namespace {

// The ranges of elements with weight decay, as begin,end pairs. They may include padding, which is
// zero.
struct Decay {
  double rate = 0;
  std::vector<int64_t> ranges;
  int64_t end = 0;  // end of the last member so far

  void add(double member_rate, int64_t elements) {
    if (member_rate != 0) {
      CHECK(rate == 0 || rate == member_rate, "members decay at ", rate, " and ", member_rate);
      rate = member_rate;
      if (!ranges.empty() && ranges.back() == end) {
        ranges.back() += elements;
      } else {
        ranges.insert(ranges.end(), {end, end + elements});
      }
    }
    end += elements;
  }

  // Empty when all or none decay.
  std::vector<int64_t> decayed() const {
    const bool all = ranges.size() == 2 && ranges[0] == 0 && ranges[1] == end;
    return all ? std::vector<int64_t>() : ranges;
  }
};

// Node of each lane in this role, in the order of the lanes.
std::vector<Node*> nodes_of(const Lanes& lanes, const LaneRole& role) {
  std::vector<Node*> nodes;
  for (const ParamLane* lane : lanes) nodes.push_back(lane->nodes.at(role));
  return nodes;
}

// Roles in an order that keeps definitions before uses.
std::vector<LaneRole> roles_of(const BucketScope& scope, const Lanes& lanes) {
  std::vector<LaneRole> roles;
  for (const auto& [role, node] : lanes[0]->nodes) roles.push_back(role);
  std::sort(roles.begin(), roles.end(), [&](const LaneRole& a, const LaneRole& b) {
    return scope.is_before(scope.last(nodes_of(lanes, a)), scope.last(nodes_of(lanes, b)));
  });
  return roles;
}

// Phase and module of the node, and temporary names for its results.
NodeOptions options_of(const Node& node) {
  NodeOptions options{.name = {}, .path = node.path, .phase = node.phase};
  for (const auto& result : node.results) {
    options.result_names.push_back(BucketScope::temporary(result->name));
  }
  return options;
}

// Storage of all lanes one after the other. `source` is the attribute of the merged op.
void merge_storage(BucketScope& scope, const std::vector<Node*>& nodes, Attr source) {
  TensorType type = nodes[0]->result()->type;
  type.shape = {0};
  for (const Node* node : nodes) type.shape[0] += node->result()->type.elements();
  scope.replace(nodes,
                scope.graph().insert_source(scope.first(nodes), *nodes[0]->op, std::move(source),
                                            std::move(type), options_of(*nodes[0])));
}

std::vector<std::string> members_of(const Lanes& lanes) {
  std::vector<std::string> members;
  for (const ParamLane* lane : lanes) {
    members.insert(members.end(), lane->members.begin(), lane->members.end());
  }
  return members;
}

// The key of the merged state: the owner becomes the bucket.
StateKey merged_key(const Node& state, const Lanes& lanes) {
  StateKey key = state_key(state);
  CHECK(key.owner == lanes[0]->item.name, "state \"", to_string(key), "\" is not of ",
        lanes[0]->item.name);
  key.owner = bucket_name(members_of(lanes));
  return key;
}

// The input with this rank's coordinate on the axis, shared by all updates.
Value* coordinate(Graph& graph, const TensorType& type) {
  const std::string name = names::coordinate(flat_axis(type));
  Value* known = find_input(graph, name);
  if (known != nullptr) return known;
  const auto& order = graph.order();
  const auto first_update = std::find_if(
      order.begin(), order.end(), [](const auto& node) { return node->phase == Phase::Optimizer; });
  const NodeOptions options{.name = name, .path = {}, .phase = Phase::Optimizer};
  return graph
      .insert_source(first_update == order.end() ? nullptr : first_update->get(), kInput, name,
                     TensorType{DType::I32, {}, {}}, options)
      ->result();
}

// Operands and attributes of a merged node.
struct Merged {
  std::vector<Value*> operands;
  Attrs attrs;
};

Merged merge_elementwise(const BucketScope& scope, const Node& model) {
  Merged merged{.operands = {}, .attrs = model.attrs};
  for (Value* operand : model.operands) {
    merged.operands.push_back(is_flat(operand->type) ? scope.merged(operand) : operand);
  }
  return merged;
}

// Ranges of decay are relative to the full bucket, so a rank has to know where its shard begins.
Merged merge_update(BucketScope& scope, const std::vector<Node*>& nodes, const Lanes& lanes) {
  const Node& model = *nodes[0];
  Merged merged = merge_elementwise(scope, model);
  Decay decay;
  // Of a bucket of shards every rank sees one.
  const int64_t shards = shards_of(lanes[0]->source->result()->type, scope.graph().mesh());
  for (size_t i = 0; i < nodes.size(); ++i) {
    decay.add(std::get<double>(nodes[i]->attr("decay")),
              lanes[i]->source->result()->type.elements() / shards);
  }
  const Signature& signature = model.op->parsed();
  merged.attrs.at(signature.attr_index("decay")) = decay.rate;
  merged.attrs.at(signature.attr_index("decayed")) = decay.decayed();
  if (!decay.decayed().empty() && model.operand("coordinate") == nullptr) {
    const Value* w = merged.operands.at(signature.operand_index("w"));
    merged.operands.push_back(coordinate(scope.graph(), w->type));
  }
  return merged;
}

// The reduction that produces the flat tensor reads the gradients of all lanes.
Merged merge_reduce_scatter(const std::vector<Node*>& nodes) {
  Merged merged{.operands = {}, .attrs = nodes[0]->attrs};
  for (const Node* node : nodes) {
    merged.operands.insert(merged.operands.end(), node->operands.begin(), node->operands.end());
  }
  return merged;
}

void merge_compute(BucketScope& scope, const std::vector<Node*>& nodes, const Lanes& lanes) {
  const Node& model = *nodes[0];
  Merged merged = model.op == &kReduceScatter ? merge_reduce_scatter(nodes)
                  : model.op->traits.update   ? merge_update(scope, nodes, lanes)
                                              : merge_elementwise(scope, model);
  Graph& graph = scope.graph();
  Node* node = graph.insert(scope.last(nodes), *model.op, std::move(merged.operands),
                            std::move(merged.attrs), options_of(model));
  for (size_t i = 0; i < node->results.size(); ++i) {
    TensorType type = node->result(i)->type;
    type.placement = model.result(i)->type.placement;
    graph.set_type(node->result(i), std::move(type));
  }
  scope.replace(nodes, node);
}

void merge_flat(BucketScope& scope, const Lanes& lanes) {
  std::vector<Node*> sources;
  for (const ParamLane* lane : lanes) sources.push_back(lane->source);
  merge_storage(scope, sources, members_of(lanes));
  for (const LaneRole& role : roles_of(scope, lanes)) {
    const std::vector<Node*> nodes = nodes_of(lanes, role);
    if (nodes[0]->op == &kBucket) continue;
    if (nodes[0]->op->traits.source) {
      merge_storage(scope, nodes, merged_key(*nodes[0], lanes));
    } else {
      merge_compute(scope, nodes, lanes);
    }
  }
  merge_gathers(scope, lanes);
}

void collect_users(const BucketScope& scope, const Node* node, const Node* place,
                   std::vector<Node*>& found, std::unordered_set<const Node*>& seen) {
  for (const auto& result : node->results) {
    for (Node* user : result->users) {
      if (!scope.is_old(user) || !scope.is_before(user, place)) continue;
      if (!seen.insert(user).second) continue;
      found.push_back(user);
      collect_users(scope, user, place, found, seen);
    }
  }
}

// Moves the direct and indirect readers of the node that come before `place` to right before it.
void sink_users(BucketScope& scope, const Node* node, Node* place) {
  std::vector<Node*> users;
  std::unordered_set<const Node*> seen;
  collect_users(scope, node, place, users, seen);
  std::sort(users.begin(), users.end(),
            [&](const Node* a, const Node* b) { return scope.is_before(a, b); });
  for (Node* user : users) scope.graph().move_before(user, place);
}

void merge_all_reduces(BucketScope& scope, const std::vector<Node*>& nodes) {
  Node* place = scope.last(nodes);
  std::vector<Value*> operands;
  NodeOptions options{.name = {}, .path = nodes[0]->path, .phase = nodes[0]->phase};
  for (const Node* node : nodes) {
    operands.push_back(node->variadic("x").front());
    options.result_names.push_back(BucketScope::temporary(node->result()->name));
  }
  Graph& graph = scope.graph();
  Node* merged = graph.insert(place, *nodes[0]->op, operands, nodes[0]->attrs, options);
  for (size_t i = 0; i < nodes.size(); ++i) {
    sink_users(scope, nodes[i], place);
    graph.replace_uses(nodes[i]->result(), merged->result(i));
    scope.name_in_the_end(merged->result(i), nodes[i]->result()->name);
  }
  scope.erase_in_the_end(nodes);
}

// Parameters stay separate; only their reductions are merged.
void merge_replicated(BucketScope& scope, const Lanes& lanes) {
  for (const LaneRole& role : roles_of(scope, lanes)) {
    merge_all_reduces(scope, nodes_of(lanes, role));
  }
}

// Makes a node that reads the flat values of many lanes read each merged value once.
void read_merged(BucketScope& scope, Node* node) {
  std::vector<Value*> operands;
  std::unordered_set<const Value*> seen;
  for (Value* operand : node->operands) {
    Value* merged = scope.find_merged(operand);
    if (merged == nullptr) {
      operands.push_back(operand);
    } else if (seen.insert(merged).second) {
      operands.push_back(merged);
    }
  }
  if (seen.empty()) return;
  Graph& graph = scope.graph();
  Node* fused = graph.clone(node, node, std::move(operands), BucketScope::kTemporary);
  for (size_t i = 0; i < node->results.size(); ++i) {
    graph.replace_uses(node->result(i), fused->result(i));
    scope.name_in_the_end(fused->result(i), node->result(i)->name);
  }
  graph.erase(node);
}

void finish(BucketScope& scope) {
  for (Node* node : scope.graph().nodes()) {
    if (merges_lanes(*node)) read_merged(scope, node);
  }
  scope.finish();
}

// The lanes of a group, split into those that can be merged.
std::vector<Lanes> mergeable_parts(const std::vector<ParamLane>& lanes,
                                   const std::vector<size_t>& group) {
  std::vector<Lanes> parts;
  for (size_t i : group) {
    const auto part = std::find_if(parts.begin(), parts.end(), [&](const Lanes& some) {
      return can_merge(*some[0], lanes[i]);
    });
    if (part == parts.end()) {
      parts.push_back({&lanes[i]});
    } else {
      part->push_back(&lanes[i]);
    }
  }
  return parts;
}

}  // namespace

MergeSummary merge_lanes(Graph& graph, const std::vector<ParamLane>& lanes,
                         const BucketPlan& plan) {
  MergeSummary summary;
  BucketScope scope(graph);
  for (const auto& group : plan.groups) {
    for (const Lanes& part : mergeable_parts(lanes, group)) {
      int64_t elements = 0;
      for (const ParamLane* lane : part) elements += lane->item.elements;
      ++summary.buckets;
      if (elements > summary.largest) {
        summary.largest = elements;
        summary.largest_name = part[0]->item.name;
      }
      if (part.size() < 2) continue;
      if (part[0]->is_flat()) {
        merge_flat(scope, part);
      } else {
        merge_replicated(scope, part);
      }
      ++summary.merged;
    }
  }
  if (summary.merged > 0) finish(scope);
  return summary;
}

}  // namespace weft

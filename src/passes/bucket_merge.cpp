// Merges node by node. Merged sources and gathers take the place of the first, all others that of
// the last, which keeps definitions before uses. New values take the names of the first lane;
// gathered tensors keep their own.
#include "passes/bucket_merge.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/text.h"
#include "graph/comm_cost.h"
#include "graph/flat.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"

namespace weft {

namespace {

using Positions = std::unordered_map<const Node*, int64_t>;
using Lanes = std::vector<const ParamLane*>;

std::vector<std::string> result_names(const Node& node) {
  std::vector<std::string> names;
  for (const auto& value : node.results) names.push_back(value->name);
  return names;
}

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

class Merger {
 public:
  explicit Merger(Graph& graph) : graph_(graph), position_(positions(graph)) {}

  void merge(const Lanes& lanes) {
    lanes[0]->is_flat() ? merge_flat(lanes) : merge_replicated(lanes);
  }

  // Nodes that read the flat values of many lanes read each merged value once.
  void finish() {
    for (Node* node : graph_.nodes()) {
      if (merges_lanes(*node)) merge_node(node);
    }
    std::sort(old_.begin(), old_.end(),
              [&](const Node* a, const Node* b) { return position_.at(a) > position_.at(b); });
    for (Node* node : old_) graph_.erase(node);
    for (const auto& [value, name] : names_) graph_.rename(value, name);
  }

 private:
  // The nodes of one role; lanes without it are skipped.
  static std::vector<Node*> side_by_side(const Lanes& lanes,
                                         std::map<std::string, Node*> ParamLane::*of,
                                         const std::string& role) {
    std::vector<Node*> nodes;
    for (const ParamLane* lane : lanes) {
      const auto found = (lane->*of).find(role);
      if (found != (lane->*of).end()) nodes.push_back(found->second);
    }
    return nodes;
  }

  Node* first(const std::vector<Node*>& nodes) const {
    return *std::min_element(nodes.begin(), nodes.end(), [&](const Node* a, const Node* b) {
      return position_.at(a) < position_.at(b);
    });
  }

  Node* last(const std::vector<Node*>& nodes) const {
    return *std::max_element(nodes.begin(), nodes.end(), [&](const Node* a, const Node* b) {
      return position_.at(a) < position_.at(b);
    });
  }

  // Roles in an order that keeps definitions before uses.
  std::vector<std::string> roles(const Lanes& lanes) const {
    std::vector<std::pair<int64_t, std::string>> found;
    for (const auto& [role, node] : lanes[0]->nodes) {
      found.emplace_back(position_.at(last(side_by_side(lanes, &ParamLane::nodes, role))), role);
    }
    std::sort(found.begin(), found.end());
    std::vector<std::string> names;
    for (auto& [position, role] : found) names.push_back(std::move(role));
    return names;
  }

  void merge_flat(const Lanes& lanes) {
    std::vector<Node*> sources;
    for (const ParamLane* lane : lanes) sources.push_back(lane->source);
    merge_source(sources, lanes, kBucket);
    for (const std::string& role : roles(lanes)) {
      const std::vector<Node*> nodes = side_by_side(lanes, &ParamLane::nodes, role);
      if (nodes[0]->op == &kBucket) continue;
      if (nodes[0]->op->traits.source) {
        merge_source(nodes, lanes, *nodes[0]->op);
      } else {
        merge_nodes(nodes, lanes);
      }
    }
    std::set<std::string> gathers;
    for (const ParamLane* lane : lanes) {
      for (const auto& [role, node] : lane->gathers) gathers.insert(role);
    }
    for (const std::string& role : gathers) merge_gathers(lanes, role);
  }

  // Storage of all lanes one after the other.
  void merge_source(const std::vector<Node*>& nodes, const Lanes& lanes, const OpDef& op) {
    std::vector<std::string> members;
    TensorType type = nodes[0]->result()->type;
    type.shape = {0};
    for (const ParamLane* lane : lanes) {
      members.insert(members.end(), lane->members.begin(), lane->members.end());
    }
    for (const Node* node : nodes) type.shape[0] += node->result()->type.elements();
    Attr attr = members;
    if (&op != &kBucket) {
      StateKey key = state_key(*nodes[0]);
      CHECK(key.owner == lanes[0]->item.name, "state \"", to_string(key), "\" is not of ",
            lanes[0]->item.name);
      key.owner = bucket_name(members);
      attr = std::move(key);
    }
    Node* merged = graph_.insert_source(first(nodes), op, std::move(attr), std::move(type),
                                        options_of(*nodes[0]));
    replace(nodes, merged);
  }

  // Merges elementwise nodes on flat tensors, and the reductions that produce flat tensors.
  void merge_nodes(const std::vector<Node*>& nodes, const Lanes& lanes) {
    std::vector<Value*> operands;
    for (Value* operand : nodes[0]->operands) {
      operands.push_back(is_flat(operand->type) ? merged_.at(operand) : operand);
    }
    if (nodes[0]->op == &kReduceScatter) {
      operands.clear();
      for (const Node* node : nodes) {
        operands.insert(operands.end(), node->operands.begin(), node->operands.end());
      }
    }
    Attrs attrs = nodes[0]->attrs;
    if (nodes[0]->op->traits.update) merge_decay(nodes, lanes, operands, attrs);
    Node* merged = graph_.insert(last(nodes), *nodes[0]->op, std::move(operands), std::move(attrs),
                                 options_of(*nodes[0]));
    for (size_t i = 0; i < merged->results.size(); ++i) {
      TensorType type = merged->result(i)->type;
      type.placement = nodes[0]->result(i)->type.placement;
      graph_.set_type(merged->result(i), std::move(type));
    }
    replace(nodes, merged);
  }

  // Ranges are relative to the full bucket, so a rank has to know where its shard begins.
  void merge_decay(const std::vector<Node*>& nodes, const Lanes& lanes,
                   std::vector<Value*>& operands, Attrs& attrs) {
    Decay decay;
    for (size_t i = 0; i < nodes.size(); ++i) {
      decay.add(std::get<double>(nodes[i]->attr("decay")),
                lanes[i]->source->result()->type.elements());
    }
    const Signature& signature = nodes[0]->op->parsed();
    const bool has_coordinate = nodes[0]->operand("coordinate") != nullptr;
    attrs.at(signature.attr_index("decay")) = decay.rate;
    attrs.at(signature.attr_index("decayed")) = decay.decayed();
    if (!decay.decayed().empty() && !has_coordinate) {
      operands.push_back(coordinate(operands[signature.operand_index("w")]->type));
    }
  }

  // The input with this rank's coordinate on the axis, shared by all updates.
  Value* coordinate(const TensorType& type) {
    const std::string name = names::coordinate(flat_placement(type)->axis);
    Value* known = find_input(graph_, name);
    if (known != nullptr) return known;
    Node* first_update = nullptr;
    for (const auto& node : graph_.order()) {
      if (node->phase != Phase::Optimizer) continue;
      first_update = node.get();
      break;
    }
    const NodeOptions options{.name = name, .path = {}, .phase = Phase::Optimizer};
    return graph_
        .insert_source(first_update, kInput, name, TensorType{DType::I32, {}, {}}, options)
        ->result();
  }

  static NodeOptions options_of(const Node& node) {
    return {.name = {}, .path = node.path, .phase = node.phase, .result_names = temporary(node)};
  }

  static std::vector<std::string> temporary(const Node& node) {
    std::vector<std::string> names = result_names(node);
    for (std::string& name : names) name += ".merged";
    return names;
  }

  void replace(const std::vector<Node*>& nodes, Node* merged) {
    merged->recomputed = nodes[0]->recomputed;
    for (size_t i = 0; i < merged->results.size(); ++i) {
      for (const Node* node : nodes) merged_[node->result(i)] = merged->result(i);
      names_.emplace_back(merged->result(i), nodes[0]->result(i)->name);
    }
    old_.insert(old_.end(), nodes.begin(), nodes.end());
  }

  // One gather of the full bucket, even if only some lanes need it.
  void merge_gathers(const Lanes& lanes, const std::string& role) {
    const std::vector<Node*> nodes = side_by_side(lanes, &ParamLane::gathers, role);
    const Node* model = nodes[0];
    const size_t types_at = model->op->parsed().attr_index("types");
    std::vector<std::string> types;
    std::vector<std::string> names;
    std::vector<Value*> operands = {merged_.at(model->operand("x"))};
    std::vector<Value*> replaced;
    for (const ParamLane* lane : lanes) {
      const auto found = lane->gathers.find(role);
      const Node* like = found != lane->gathers.end() ? found->second : any_gather(*lane);
      operands.insert(operands.end(), like->operands.begin() + 1, like->operands.end());
      for (const auto& result : like->results) {
        const bool asked = found != lane->gathers.end();
        const TensorType type{model->result()->type.dtype, result->type.shape, {}};
        types.push_back(to_string(type));
        names.push_back(asked ? result->name : result->name + ".again");
        replaced.push_back(result.get());
      }
    }
    Attrs attrs = model->attrs;
    attrs.at(types_at) = types;
    NodeOptions options{.name = {}, .path = model->path, .phase = model->phase};
    for (const std::string& name : names) options.result_names.push_back(name + ".merged");
    const bool from_storage = model->operand("x")->def->op->traits.source;
    Node* place = from_storage ? first(with_late_readers(lanes, role, nodes)) : last(nodes);
    Node* merged = graph_.insert(place, *model->op, operands, attrs, options);
    merged->recomputed = model->recomputed;
    for (size_t i = 0; i < replaced.size(); ++i) {
      redirect(replaced[i], merged->result(i),
               std::find(nodes.begin(), nodes.end(), replaced[i]->def) != nodes.end());
      names_.emplace_back(merged->result(i), names[i]);
    }
    old_.insert(old_.end(), nodes.begin(), nodes.end());
  }

  static const Node* any_gather(const ParamLane& lane) {
    CHECK(!lane.gathers.empty(), lane.item.name, " is never gathered");
    return lane.gathers.begin()->second;
  }

  // If a bucket is gathered again for some lanes, the backward of all lanes reads that gather.
  std::vector<Node*> with_late_readers(const Lanes& lanes, const std::string& role,
                                       std::vector<Node*> nodes) const {
    if (!nodes[0]->recomputed) return nodes;
    std::vector<Node*> all = nodes;
    for (const ParamLane* lane : lanes) {
      if (lane->gathers.contains(role)) continue;
      for (const auto& result : any_gather(*lane)->results) {
        for (Node* user : result->users) {
          if (user->phase == Phase::Backward && position_.contains(user)) all.push_back(user);
        }
      }
    }
    return all;
  }

  void redirect(Value* from, Value* to, bool asked) {
    if (asked) {
      graph_.replace_uses(from, to);
      return;
    }
    if (!to->def->recomputed) return;
    const std::vector<Node*> users = from->users;
    for (Node* user : users) {
      if (user->phase != Phase::Backward) continue;
      for (size_t i = 0; i < user->operands.size(); ++i) {
        if (user->operands[i] == from) graph_.replace_operand(user, i, to);
      }
    }
  }

  // Parameters stay separate; only their reductions are merged.
  void merge_replicated(const Lanes& lanes) {
    for (const std::string& role : roles(lanes)) {
      const std::vector<Node*> nodes = side_by_side(lanes, &ParamLane::nodes, role);
      Node* place = last(nodes);
      std::vector<Value*> operands;
      NodeOptions options{.name = {}, .path = nodes[0]->path, .phase = nodes[0]->phase};
      for (const Node* node : nodes) {
        operands.push_back(node->operands.at(0));
        options.result_names.push_back(node->result()->name + ".merged");
      }
      Node* merged = graph_.insert(place, *nodes[0]->op, operands, nodes[0]->attrs, options);
      for (size_t i = 0; i < nodes.size(); ++i) {
        sink_users(nodes[i], place);
        graph_.replace_uses(nodes[i]->result(), merged->result(i));
        names_.emplace_back(merged->result(i), nodes[i]->result()->name);
      }
      old_.insert(old_.end(), nodes.begin(), nodes.end());
    }
  }

  // Moves the direct and indirect readers of the node that come before `place` to right before it.
  void sink_users(const Node* node, Node* place) {
    std::vector<Node*> moved;
    std::unordered_set<const Node*> seen;
    collect_users(node, place, moved, seen);
    std::sort(moved.begin(), moved.end(),
              [&](const Node* a, const Node* b) { return position_.at(a) < position_.at(b); });
    for (Node* user : moved) graph_.move_before(user, place);
  }

  void collect_users(const Node* node, const Node* place, std::vector<Node*>& moved,
                     std::unordered_set<const Node*>& seen) const {
    for (const auto& result : node->results) {
      for (Node* user : result->users) {
        const auto at = position_.find(user);
        if (at == position_.end() || at->second >= position_.at(place)) continue;
        if (!seen.insert(user).second) continue;
        moved.push_back(user);
        collect_users(user, place, moved, seen);
      }
    }
  }

  void merge_node(Node* node) {
    std::vector<Value*> operands;
    std::unordered_set<const Value*> seen;
    bool changed = false;
    for (Value* operand : node->operands) {
      const auto found = merged_.find(operand);
      changed |= found != merged_.end();
      Value* value = found == merged_.end() ? operand : found->second;
      if (found == merged_.end() || seen.insert(value).second) operands.push_back(value);
    }
    if (!changed) return;
    Node* fused = graph_.clone(node, node, std::move(operands), ".merged");
    for (size_t i = 0; i < node->results.size(); ++i) {
      graph_.replace_uses(node->result(i), fused->result(i));
      names_.emplace_back(fused->result(i), node->result(i)->name);
    }
    graph_.erase(node);
  }

  Graph& graph_;
  const Positions position_;  // of the nodes before any merge
  std::unordered_map<const Value*, Value*> merged_;
  std::vector<Node*> old_;
  std::vector<std::pair<Value*, std::string>> names_;  // assigned once the old values are erased
};

// The lanes of a group, split by shape.
std::vector<Lanes> equal_shapes(const std::vector<ParamLane>& lanes,
                                const std::vector<size_t>& group) {
  std::vector<Lanes> parts;
  std::map<std::string, size_t> part;
  for (size_t i : group) {
    const std::string& shape = lanes[i].shape;
    const auto found = part.find(shape);
    if (shape.empty() || found == part.end()) {
      if (!shape.empty()) part.emplace(shape, parts.size());
      parts.push_back({&lanes[i]});
    } else {
      parts[found->second].push_back(&lanes[i]);
    }
  }
  return parts;
}

}  // namespace

MergeSummary merge_lanes(Graph& graph, const std::vector<ParamLane>& lanes,
                         const BucketPlan& plan) {
  MergeSummary summary;
  Merger merger(graph);
  for (const auto& group : plan.groups) {
    for (const Lanes& part : equal_shapes(lanes, group)) {
      int64_t elements = 0;
      for (const ParamLane* lane : part) elements += lane->item.elements;
      ++summary.buckets;
      if (elements > summary.largest) {
        summary.largest = elements;
        summary.largest_name = part[0]->item.name;
      }
      if (part.size() < 2) continue;
      merger.merge(part);
      ++summary.merged;
    }
  }
  if (summary.merged > 0) merger.finish();
  return summary;
}

size_t reuse_fresh_gathers(Graph& graph) {
  const Positions position = positions(graph);
  std::map<std::pair<const Value*, std::string>, Node*> forward;
  int64_t last_gather = -1;  // among the gathers that are kept
  size_t gone = 0;
  for (Node* node : graph.nodes()) {
    if (node->op != &kAllGather || !node->operand("x")->def->op->traits.source) continue;
    const std::pair key = {node->operand("x"), to_string(node->attr("types"))};
    const auto first = forward.find(key);
    if (node->recomputed && first != forward.end()) {
      int64_t last_use = position.at(first->second);
      for (const auto& result : first->second->results) {
        for (const Node* user : result->users) {
          if (user->phase == Phase::Forward) last_use = std::max(last_use, position.at(user));
        }
      }
      if (last_gather < last_use) {
        for (size_t i = 0; i < node->results.size(); ++i) {
          graph.replace_uses(node->result(i), first->second->result(i));
        }
        graph.erase(node);
        ++gone;
        continue;
      }
    }
    if (node->phase == Phase::Forward) forward.emplace(key, node);
    last_gather = position.at(node);
  }
  return gone;
}

}  // namespace weft

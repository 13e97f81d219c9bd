// Finds the lane of flat storage by following flat values, and that of a replicated parameter by
// following the gradient of its update back to the reductions.
#include "passes/param_lane.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "base/text.h"
#include "graph/comm_cost.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"
#include "graph/update.h"

namespace weft {

namespace {

using Positions = std::unordered_map<const Node*, int64_t>;

bool has_attr(const Node& node, std::string_view name) {
  const auto& attrs = node.op->parsed().attrs;
  return std::any_of(attrs.begin(), attrs.end(),
                     [&](const AttrSpec& attr) { return attr.name == name; });
}

// All nodes connected to the source through flat values, in order.
std::vector<Node*> flood(Node* source, const Positions& position) {
  std::unordered_set<const Node*> seen = {source};
  std::vector<Node*> nodes = {source};
  const auto visit = [&](Node* node) {
    if (!merges_lanes(*node) && seen.insert(node).second) nodes.push_back(node);
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node* node = nodes[i];
    for (const Value* operand : node->operands) {
      if (is_flat(operand->type)) visit(operand->def);
    }
    for (const auto& result : node->results) {
      if (!is_flat(result->type)) continue;
      for (Node* user : result->users) visit(user);
    }
  }
  std::sort(nodes.begin(), nodes.end(),
            [&](const Node* a, const Node* b) { return position.at(a) < position.at(b); });
  return nodes;
}

// The role of a node in its lane, independent of the lane's parameter.
std::string role(const Node& node, const ParamLane& lane) {
  std::string text = cat(node.op->name(), " ", phase_name(node.phase));
  if (node.recomputed) text += " recomputed";
  if (has_attr(node, "axis")) text += cat(" ", std::get<std::string>(node.attr("axis")));
  if (is_gather(*node.op)) text += cat(" ", dtype_name(node.result()->type.dtype));
  if (node.op == &kState) {
    StateKey key = state_key(node);
    if (key.owner == lane.item.name) key.owner = "own";
    text += cat(" ", to_string(key));
  }
  return text;
}

// Everything besides roles that has to be equal for a merge.
std::string conditions(const Node& node) {
  std::string text;
  if (node.op != &kReduceScatter) {
    for (const Value* operand : node.operands) {
      if (!is_flat(operand->type)) text += cat(" %", operand->name);
    }
  }
  for (const auto& result : node.results) {
    text += cat(" ", dtype_name(result->type.dtype));
    TensorType placed{DType::F32, {}, result->type.placement};
    text += to_string(placed);
  }
  const auto& specs = node.op->parsed().attrs;
  for (size_t i = 0; i < node.attrs.size() && !node.op->traits.source; ++i) {
    if (specs[i].name != "decay" && specs[i].name != "decayed") {
      text += cat(" ", specs[i].name, "=", to_string(node.attrs[i]));
    }
  }
  return text;
}

void add_node(ParamLane& lane, Node* node) {
  auto& list = is_gather(*node->op) ? lane.gathers : lane.nodes;
  const std::string name = role(*node, lane);
  std::string unique = name;
  for (int copy = 2; list.contains(unique); ++copy) unique = cat(name, " ", copy);
  list.emplace(unique, node);
  if (!is_gather(*node->op)) lane.shape += cat(unique, conditions(*node), "; ");
}

ParamLane flat_lane(Node* source, const Positions& position,
                    const std::unordered_set<const Value*>& outputs) {
  ParamLane lane;
  lane.source = source;
  lane.members = stored_params(*source);
  lane.item = {.name = lane.members.at(0), .elements = source->result()->type.elements()};
  bool alone = lane.members.size() > 1;
  for (Node* node : flood(source, position)) {
    // A lane with two buckets (parameters that share a gradient) cannot be merged with others.
    alone |= node->op == &kBucket && node != source;
    for (const auto& result : node->results) {
      alone |= is_flat(result->type) && outputs.contains(result.get());
    }
    add_node(lane, node);
  }
  if (alone) lane.shape.clear();
  if (!lane.gathers.empty()) {
    lane.item.elements = 0;
    for (const auto& result : lane.gathers.begin()->second->results) {
      lane.item.elements += result->type.elements();
    }
  }
  return lane;
}

// The all_reduces between a gradient and its update.
ParamLane replicated_lane(Node* source, const Node& update) {
  ParamLane lane;
  lane.source = source;
  lane.members = stored_params(*source);
  lane.item = {.name = lane.members[0], .elements = source->result()->type.elements()};
  std::vector<Node*> chain;
  const Value* value = update.operand("g");
  while (true) {
    Node* def = value->def;
    if (def->op == &kAccumulate) {
      value = def->operand("g");
    } else if (def->op == &kAllReduce && def->operands.size() == 1) {
      chain.push_back(def);
      value = def->variadic("x").front();
    } else {
      break;
    }
  }
  for (auto node = chain.rbegin(); node != chain.rend(); ++node) {
    lane.nodes.emplace(role(**node, lane), *node);
    lane.shape += cat(role(**node, lane), " ", dtype_name((*node)->result()->type.dtype), "; ");
  }
  return lane;
}

}  // namespace

bool ParamLane::is_flat() const {
  return source->op == &kBucket;
}

bool merges_lanes(const Node& node) {
  const auto& operands = node.op->parsed().operands;
  return !node.op->traits.collective && !operands.empty() &&
         operands.back().kind == OperandKind::Variadic;
}

std::vector<ParamLane> find_lanes(const Graph& graph) {
  const Positions position = positions(graph);
  std::unordered_set<const Value*> outputs;
  for (const auto& output : graph.outputs()) outputs.insert(output.value);
  std::vector<ParamLane> lanes;
  std::unordered_set<const Node*> taken;
  for (Node* node : graph.nodes()) {
    if (node->op == &kBucket) {
      lanes.push_back(flat_lane(node, position, outputs));
    } else if (node->op == &kParam) {
      const Node* update = update_of(*node->result());
      if (update == nullptr) continue;
      ParamLane lane = replicated_lane(node, *update);
      if (lane.nodes.empty()) continue;
      for (const auto& [name, reduction] : lane.nodes) {
        if (!taken.insert(reduction).second) lane.shape.clear();
      }
      lanes.push_back(std::move(lane));
    }
  }
  return lanes;
}

}  // namespace weft

// Finds the lane of flat storage by following flat values, and that of a replicated parameter by
// following the gradient of its update back to the reductions.
#include "passes/param_lane.h"

#include <algorithm>
#include <unordered_set>

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

LaneRole role_of(const Node& node, const ParamLane& lane) {
  LaneRole role{.op = node.op->name(), .phase = node.phase, .recomputed = node.recomputed};
  if (has_attr(node, "axis")) role.axis = std::get<std::string>(node.attr("axis"));
  if (is_gather(*node.op)) role.gathered = node.result()->type.dtype;
  if (node.op == &kState) {
    role.state = state_key(node);
    if (role.state->owner == lane.item.name) role.state->owner.clear();
  }
  return role;
}

// Attributes of an update that differ between parameters.
bool is_combined(std::string_view attr) {
  return attr == "decay" || attr == "decayed";
}

LaneNode describe(const Node& node, LaneRole role) {
  LaneNode described{.role = std::move(role), .operands = {}, .results = {}, .attrs = {}};
  if (node.op != &kReduceScatter) {
    for (const Value* operand : node.operands) {
      if (!is_flat(operand->type)) described.operands.push_back(operand);
    }
  }
  for (const auto& result : node.results) {
    described.results.push_back({result->type.dtype, {}, result->type.placement});
  }
  const auto& specs = node.op->parsed().attrs;
  for (size_t i = 0; i < node.attrs.size() && !node.op->traits.source; ++i) {
    if (!is_combined(specs[i].name)) described.attrs.push_back(node.attrs[i]);
  }
  return described;
}

void add_node(ParamLane& lane, Node* node) {
  auto& nodes = is_gather(*node->op) ? lane.gathers : lane.nodes;
  LaneRole role = role_of(*node, lane);
  while (nodes.contains(role)) ++role.copy;
  nodes.emplace(role, node);
  if (!is_gather(*node->op)) lane.shape.push_back(describe(*node, std::move(role)));
}

ParamLane flat_lane(Node* source, const Positions& position,
                    const std::unordered_set<const Value*>& outputs) {
  ParamLane lane;
  lane.source = source;
  lane.members = stored_params(*source);
  lane.item = {.name = lane.members.at(0), .elements = source->result()->type.elements()};
  lane.mergeable = lane.members.size() == 1;
  for (Node* node : flood(source, position)) {
    // A lane with two buckets (parameters that share a gradient) cannot be merged with others.
    if (node->op == &kBucket && node != source) lane.mergeable = false;
    for (const auto& result : node->results) {
      if (is_flat(result->type) && outputs.contains(result.get())) lane.mergeable = false;
    }
    add_node(lane, node);
  }
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
    const LaneRole role = role_of(**node, lane);
    lane.nodes.emplace(role, *node);
    const TensorType result{(*node)->result()->type.dtype, {}, {}};
    lane.shape.push_back({.role = role, .operands = {}, .results = {result}, .attrs = {}});
  }
  return lane;
}

void set_kinds(std::vector<ParamLane>& lanes) {
  std::vector<const ParamLane*> kinds;  // one lane of each
  for (ParamLane& lane : lanes) {
    const auto alike = std::find_if(kinds.begin(), kinds.end(), [&](const ParamLane* other) {
      return can_merge(*other, lane);
    });
    lane.item.kind = alike - kinds.begin();
    if (alike == kinds.end()) kinds.push_back(&lane);
  }
}

}  // namespace

bool ParamLane::is_flat() const {
  return source->op == &kBucket;
}

bool can_merge(const ParamLane& one, const ParamLane& other) {
  return one.mergeable && other.mergeable && one.shape == other.shape;
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
      for (const auto& [role, reduction] : lane.nodes) {
        if (!taken.insert(reduction).second) lane.mergeable = false;
      }
      lanes.push_back(std::move(lane));
    }
  }
  set_kinds(lanes);
  return lanes;
}

}  // namespace weft

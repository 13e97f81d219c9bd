// A merged gather returns the full bucket, even if only some lanes ask for it. If it is the second
// gather, for the backward, the backward of the other lanes reads it too.
#include "passes/bucket_gathers.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "graph/ops/ops.h"

namespace weft {

namespace {

// A tensor of a merged gather.
struct Member {
  Value* old;  // the result of the lane's gather in this role, or of any other if it has none
  bool asked;  // whether the lane has this role
  std::string name() const { return asked ? old->name : old->name + ".again"; }
};

const Node* any_gather(const ParamLane& lane) {
  CHECK(!lane.gathers.empty(), lane.item.name, " is never gathered");
  return lane.gathers.begin()->second;
}

// The gather whose results the merged one replaces or repeats.
const Node* gather_like(const ParamLane& lane, const LaneRole& role) {
  const auto found = lane.gathers.find(role);
  return found != lane.gathers.end() ? found->second : any_gather(lane);
}

std::vector<Node*> gathers_of(const Lanes& lanes, const LaneRole& role) {
  std::vector<Node*> nodes;
  for (const ParamLane* lane : lanes) {
    const auto found = lane->gathers.find(role);
    if (found != lane->gathers.end()) nodes.push_back(found->second);
  }
  return nodes;
}

std::vector<Member> members_of(const Lanes& lanes, const LaneRole& role) {
  std::vector<Member> members;
  for (const ParamLane* lane : lanes) {
    for (const auto& result : gather_like(*lane, role)->results) {
      members.push_back({.old = result.get(), .asked = lane->gathers.contains(role)});
    }
  }
  return members;
}

// If a bucket is gathered again for some lanes, the backward of all lanes reads that gather.
std::vector<Node*> late_readers(const BucketScope& scope, const Lanes& lanes,
                                const LaneRole& role) {
  std::vector<Node*> readers;
  for (const ParamLane* lane : lanes) {
    if (lane->gathers.contains(role)) continue;
    for (const auto& result : any_gather(*lane)->results) {
      for (Node* user : result->users) {
        if (user->phase == Phase::Backward && scope.is_old(user)) readers.push_back(user);
      }
    }
  }
  return readers;
}

// Where the merged gather goes: before the first reader if it reads storage, which exists from the
// start.
Node* place_of(const BucketScope& scope, const Lanes& lanes, const LaneRole& role) {
  std::vector<Node*> nodes = gathers_of(lanes, role);
  if (!nodes[0]->operand("x")->def->op->traits.source) return scope.last(nodes);
  if (nodes[0]->recomputed) {
    const std::vector<Node*> readers = late_readers(scope, lanes, role);
    nodes.insert(nodes.end(), readers.begin(), readers.end());
  }
  return scope.first(nodes);
}

Node* insert_gather(BucketScope& scope, const Lanes& lanes, const LaneRole& role,
                    const std::vector<Member>& members) {
  const Node& model = *gathers_of(lanes, role)[0];
  std::vector<Value*> operands = {scope.merged(model.operand("x"))};
  for (const ParamLane* lane : lanes) {
    const std::span<Value* const> into = gather_like(*lane, role)->variadic("into");
    operands.insert(operands.end(), into.begin(), into.end());
  }
  std::vector<std::string> types;
  NodeOptions options{.name = {}, .path = model.path, .phase = model.phase};
  for (const Member& member : members) {
    types.push_back(to_string(TensorType{model.result()->type.dtype, member.old->type.shape,
                                         member.old->type.placement}));
    options.result_names.push_back(BucketScope::temporary(member.name()));
  }
  Attrs attrs = model.attrs;
  attrs.at(model.op->parsed().attr_index("types")) = std::move(types);
  Node* merged = scope.graph().insert(place_of(scope, lanes, role), *model.op, std::move(operands),
                                      std::move(attrs), options);
  merged->recomputed = model.recomputed;
  return merged;
}

void redirect_backward(Graph& graph, const Value* from, Value* to) {
  const std::vector<Node*> users = from->users;
  for (Node* user : users) {
    if (user->phase != Phase::Backward) continue;
    for (size_t i = 0; i < user->operands.size(); ++i) {
      if (user->operands[i] == from) graph.replace_operand(user, i, to);
    }
  }
}

void merge_role(BucketScope& scope, const Lanes& lanes, const LaneRole& role) {
  const std::vector<Member> members = members_of(lanes, role);
  Node* merged = insert_gather(scope, lanes, role, members);
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].asked) {
      scope.graph().replace_uses(members[i].old, merged->result(i));
    } else if (merged->recomputed) {
      redirect_backward(scope.graph(), members[i].old, merged->result(i));
    }
    scope.name_in_the_end(merged->result(i), members[i].name());
  }
  scope.erase_in_the_end(gathers_of(lanes, role));
}

// Position of the last node of the forward that reads the gather, or of the gather itself.
int64_t last_forward_use(const Node& gather,
                         const std::unordered_map<const Node*, int64_t>& position) {
  int64_t last = position.at(&gather);
  for (const auto& result : gather.results) {
    for (const Node* user : result->users) {
      if (user->phase == Phase::Forward) last = std::max(last, position.at(user));
    }
  }
  return last;
}

}  // namespace

void merge_gathers(BucketScope& scope, const Lanes& lanes) {
  std::set<LaneRole> roles;
  for (const ParamLane* lane : lanes) {
    for (const auto& [role, node] : lane->gathers) roles.insert(role);
  }
  // Second gathers come first: they take over the backward of lanes that only have a first one.
  for (const bool second : {true, false}) {
    for (const LaneRole& role : roles) {
      if (role.recomputed == second) merge_role(scope, lanes, role);
    }
  }
}

size_t reuse_fresh_gathers(Graph& graph) {
  const auto position = positions(graph);
  std::map<std::pair<const Value*, std::string>, const Node*> forward;  // by storage and types
  int64_t last_gather = -1;                                             // of those that are kept
  size_t removed = 0;
  for (Node* node : graph.nodes()) {
    if (node->op != &kAllGather || !node->operand("x")->def->op->traits.source) continue;
    const std::pair key = {node->operand("x"), to_string(node->attr("types"))};
    const auto earlier = forward.find(key);
    if (node->recomputed && earlier != forward.end() &&
        last_gather < last_forward_use(*earlier->second, position)) {
      for (size_t i = 0; i < node->results.size(); ++i) {
        graph.replace_uses(node->result(i), earlier->second->result(i));
      }
      graph.erase(node);
      ++removed;
      continue;
    }
    if (node->phase == Phase::Forward) forward.emplace(key, node);
    last_gather = position.at(node);
  }
  return removed;
}

}  // namespace weft

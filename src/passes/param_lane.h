// A lane is the part of the graph that sharding creates for one parameter: storage, gathers,
// reductions, accumulation, states and update. Lanes of equal shape can be merged node by node.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "passes/bucket_plan.h"

namespace weft {

// What a node does in its lane, the same for every parameter.
struct LaneRole {
  std::string_view op;  // its name: the order of roles must not depend on addresses
  Phase phase = Phase::Forward;
  bool recomputed = false;
  std::string axis = {};                              // of a collective
  std::optional<DType> gathered = {};                 // the dtype that a gather returns
  std::optional<StateKey> state = {};                 // without an owner if that is the lane itself
  int copy = 0;                                       // tells nodes apart that are otherwise alike
  auto operator<=>(const LaneRole&) const = default;  // NOLINT(modernize-use-nullptr): not one
};

// What must be equal, node by node, for two lanes to be merged.
struct LaneNode {
  LaneRole role;
  std::vector<const Value*> operands;  // that are not flat
  std::vector<TensorType> results;     // without shapes
  Attrs attrs;                         // without those that a merge combines
  bool operator==(const LaneNode&) const = default;
};

struct ParamLane {
  BucketItem item;         // first member, and elements without padding
  Node* source = nullptr;  // bucket, or param if storage is replicated
  std::vector<std::string> members;
  std::map<LaneRole, Node*> nodes;    // without gathers; the same roles in lanes of equal shape
  std::map<LaneRole, Node*> gathers;  // a lane may lack some
  std::vector<LaneNode> shape;        // of `nodes`, in execution order
  bool mergeable = true;

  bool is_flat() const;
};

bool can_merge(const ParamLane& one, const ParamLane& other);

// Lanes of the graph's parameters in order of registration; empty if nothing is communicated.
std::vector<ParamLane> find_lanes(const Graph& graph);

// Whether the node reduces the flat values of many lanes to one number, so that it belongs to no
// lane.
bool merges_lanes(const Node& node);

}  // namespace weft

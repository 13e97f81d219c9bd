// A lane is the part of the graph that sharding creates for one parameter: storage, gathers,
// reductions, accumulation, states and update. Lanes of equal shape can be merged node by node.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/bucket_plan.h"

namespace weft {

struct ParamLane {
  BucketItem item;         // first member, and elements without padding
  Node* source = nullptr;  // bucket, or param if storage is replicated
  std::vector<std::string> members;
  std::map<std::string, Node*> nodes;    // by role, without gathers; the same roles in every lane
  std::map<std::string, Node*> gathers;  // by role; a lane may lack some
  std::string shape;                     // equal for lanes that can be merged; "" if it cannot

  bool is_flat() const;
};

// Lanes of the graph's parameters in order of registration; empty if nothing is communicated.
std::vector<ParamLane> find_lanes(const Graph& graph);

// Whether the node reduces the flat values of many lanes to one number, so that it belongs to no
// lane.
bool merges_lanes(const Node& node);

}  // namespace weft

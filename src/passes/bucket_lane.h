// A lane is everything in the graph that exists once per parameter because of its sharding:
// storage, gathers, reductions, accumulation, states and update. Lanes of equal shape can be laid
// side by side and merged node by node.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/bucket_plan.h"

namespace weft {

struct Lane {
  BucketItem item;         // first member, and elements without padding
  Node* source = nullptr;  // bucket, or param when storage is whole
  std::vector<std::string> members;
  std::map<std::string, Node*> nodes;    // by role, gathers aside: one node of each in every lane
  std::map<std::string, Node*> gathers;  // by role; a lane may lack some
  std::string shape;                     // equal for lanes that may be merged; "" if this may not

  bool is_flat() const;
};

// Lanes of the graph's parameters in order of registration; none where nothing is communicated.
std::vector<Lane> find_lanes(const Graph& graph);

// Whether the value is flat storage cut over an axis.
bool is_flat(const TensorType& type);

// Whether the node takes many flat values of which it makes one number, so that it belongs to no
// lane.
bool joins_lanes(const Node& node);

}  // namespace weft

// The parts of packed dims (graph/dims.h) of every value of a compiled graph. They start at the
// parameters and follow the letters of the sharding rules. Needed to put sharded values together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace weft {

// By dim; empty: not packed.
using DimParts = std::vector<std::vector<int64_t>>;

class PackedDims {
 public:
  // `params` are the parts of the parameters that have packed dims, by name.
  PackedDims(const Graph& graph, const std::map<std::string, DimParts>& params);

  DimParts of(const Value& value) const;

 private:
  void follow_rule(const Node& node);
  void follow_gather(const Node& node, const std::map<std::string, DimParts>& params);

  std::unordered_map<const Value*, DimParts> parts_;
};

}  // namespace weft

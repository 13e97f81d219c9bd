// The rows that tokens have on their way to experts: how many sources, destinations and slots they
// have on a mesh. A model makes them for one rank.
#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace weft {

class ExpertRows {
 public:
  // `sources` ranks, or groups of ranks, have different tokens. `capacity` limits the rows of a
  // source and destination, relative to an even load; 0: no limit.
  ExpertRows(Graph& graph, int64_t sources, int64_t parts, double capacity)
      : graph_(graph), sources_(sources), parts_(parts), capacity_(capacity) {}

  // Gives a node that makes rows or computes with them its attributes for the mesh. Its results
  // have to be typed again.
  void resize(Node* node);

 private:
  Graph& graph_;
  int64_t sources_ = 1;
  int64_t parts_ = 1;
  double capacity_ = 0;
};

}  // namespace weft

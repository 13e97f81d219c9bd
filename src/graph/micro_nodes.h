// A step over several micro-batches runs the forward and backward of each, and the update once.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace weft {

// What runs for every micro-batch but the last, in the order given: all nodes of the graph but the
// optimizer and what only that needs.
std::vector<Node*> micro_nodes(const Graph& graph, std::span<Node* const> order);

}  // namespace weft

// An optimizer step runs forward and backward once per micro-batch, and the update once.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace weft {

// The nodes that run for every micro-batch but the last, in the given order: all except the
// optimizer and the nodes that only the optimizer needs.
std::vector<Node*> micro_nodes(const Graph& graph, std::span<Node* const> order);

}  // namespace weft

// Invariants checked after every pass: definitions come before uses, types match the inferred ones,
// use lists are exact, names are unique, overwritten values are neither read afterwards nor
// outputs, and only wait reads futures.
#pragma once

#include "graph/graph.h"

namespace weft {

// Throws InternalError naming the node.
void verify(const Graph& graph);

}  // namespace weft

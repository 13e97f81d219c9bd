// Structural checks that hold after every pass: definitions stand before uses, types are what the
// ops infer, use lists are exact, names are unique, overwritten values are neither read afterwards
// nor outputs, futures are read by wait alone.
#pragma once

#include "graph/graph.h"

namespace weft {

// Throws InternalError naming the node.
void verify(const Graph& graph);

}  // namespace weft

// Inserts reductions; shared by place and shard_params.
#pragma once

#include "graph/graph.h"

namespace weft {

// Inserts an all_reduce before `before` for every axis that `value` is partial over, innermost axis
// first. Redirects all uses of the value to the reduced one and returns it. The value must be
// partial; the results are named after it with ".reduced" appended.
Value* all_reduce(Graph& graph, Value* value, Node* before, const NodeOptions& options);

}  // namespace weft

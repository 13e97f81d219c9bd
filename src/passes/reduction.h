// Reductions as nodes: what place and shard_params share.
#pragma once

#include "graph/graph.h"

namespace weft {

// Whether the value is a partial sum over some axis.
bool is_partial(const TensorType& type);

// Adds an all_reduce before `before` for every axis that `value` is partial over, innermost axis
// first, and makes all uses of the value uses of the whole one, which is returned. The value must
// be partial; its name, ".reduced" added, names the results.
Value* all_reduce(Graph& graph, Value* value, Node* before, const NodeOptions& options);

}  // namespace weft

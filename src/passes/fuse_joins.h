// The joins of `fuse`: neighbours that pass over the same memory become one op (ops/joined.cpp).
//
//   %d.w.1 = matmul(%d.logits.1, %x.1; ta=true, out="f32")
//   %d.w.sum = add_in_place(%d.w.0, %d.w.1)
// becomes
//   %d.w.sum.fused = matmul_add(%d.w.0, %d.logits.1, %x.1; ta=true)
#pragma once

#include <string>
#include <unordered_map>

#include "graph/graph.h"

namespace weft {

// Joins all there are; says what was joined, "" when nothing was.
std::string join_neighbours(Graph& graph);

// The node that writes over each value that is written over.
std::unordered_map<const Value*, const Node*> overwriters(const Graph& graph);

}  // namespace weft

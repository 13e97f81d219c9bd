// Fuses neighbours that read or write the same memory into one op (ops/fused.cpp).
//
//   %d.w.1 = matmul(%d.logits.1, %x.1; ta=true, out="f32")
//   %d.w.sum = add_in_place(%d.w.0, %d.w.1)
// becomes
//   %d.w.sum.fused = matmul_add(%d.w.0, %d.logits.1, %x.1; ta=true)
#pragma once

#include <string>

#include "graph/graph.h"

namespace weft {

// Applies every fusion that matches; returns a summary, "" if nothing was fused.
std::string fuse_neighbours(Graph& graph);

}  // namespace weft

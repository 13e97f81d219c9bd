// The decision behind the overlap pass: an order of nodes in which collectives run beside
// computation. Starts of gathers go up, waits for reductions go down, with whatever only passes
// their results on; computation keeps its order. Gathers of an axis stay in order among themselves,
// and so do its reductions.
#pragma once

#include <vector>

#include "passes/pass.h"

namespace weft {

struct Schedule {
  std::vector<Node*> order;
  int64_t prefetch = 0;     // buckets gathered ahead
  bool is_limited = false;  // fewer than asked for, because memory is short
};

// Turns every collective into its start and, right behind it, the wait; gives their number.
size_t split_collectives(Graph& graph);

// The order for compile.prefetch and compile.overlap_with within the memory of the device. Throws
// UserError for an entry of overlap_with that names nothing.
Schedule choose_schedule(const Graph& graph, const PassContext& context);

}  // namespace weft

// The decision behind the overlap pass: an order of nodes in which collectives run beside
// computation. Starts of gathers go up, waits for reductions go down, with whatever only passes
// their results on; computation keeps its order. Gathers of an axis stay in order among themselves,
// and so do its reductions.
#pragma once

#include <span>
#include <vector>

#include "graph/timeline.h"
#include "passes/pass.h"

namespace weft {

struct Schedule {
  std::vector<Node*> order;
  int64_t prefetch = 0;  // buckets gathered ahead, at most
  int64_t held = 0;      // collectives that move less far than asked for, because memory is short
};

// Turns every collective into its start and, right behind it, the wait; gives their number.
size_t split_collectives(Graph& graph);

// What one optimizer step takes with the nodes in this order.
StepEstimate estimate_order(const Graph& graph, std::span<Node* const> order,
                            const PassContext& context);

// The order for compile.prefetch and compile.overlap_with within the memory of the device, or,
// where that is too small for any order, within the peak that there is without overlap. Throws
// UserError for an entry of overlap_with that names nothing.
Schedule choose_schedule(const Graph& graph, const PassContext& context);

}  // namespace weft

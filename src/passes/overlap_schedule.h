// The decision behind the overlap pass: an order of nodes in which collectives overlap with
// compute. Starts of gathers move up; waits for reductions move down, along with nodes that only
// forward their results. Compute keeps its order. Gathers over an axis keep their relative order,
// and so do reductions.
#pragma once

#include <span>
#include <vector>

#include "graph/timeline.h"
#include "passes/pass.h"

namespace weft {

struct Schedule {
  std::vector<Node*> order;
  int64_t prefetch = 0;  // buckets gathered ahead, at most
  int64_t held = 0;      // collectives moved less far than requested, because memory is short
};

// Replaces every collective that can overlap by its start, directly followed by the wait; returns
// their number.
size_t split_collectives(Graph& graph);

// The estimate of one optimizer step with the nodes in this order.
StepEstimate estimate_order(const Graph& graph, std::span<Node* const> order,
                            const PassContext& context);

// The order for compile.prefetch and compile.overlap_with within the memory of the device. If that
// is too small even without overlap, the limit is the peak without overlap. Throws UserError for an
// entry of overlap_with that matches nothing.
Schedule choose_schedule(const Graph& graph, const PassContext& context);

}  // namespace weft

// What a step would take, read off an order of nodes. Time is that of the plan which lowering would
// make of it (clocks.h); memory is the sum of what is live, before any reuse in place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "config/device_spec.h"
#include "graph/clocks.h"
#include "graph/graph.h"

namespace weft {

struct StepEstimate {
  PlanTime time;
  int64_t persistent_bytes = 0;  // sources, per rank
  int64_t peak_bytes = 0;        // most bytes of other values live at once, per rank
};

// What one rank holds while the nodes run in this order.
struct MemoryCurve {
  int64_t persistent_bytes = 0;     // sources
  std::vector<int64_t> live_bytes;  // of other values: during each node, and behind the last

  int64_t peak_bytes() const { return *std::max_element(live_bytes.begin(), live_bytes.end()); }
};

MemoryCurve memory_curve(const Graph& graph, std::span<Node* const> order);

// One optimizer step over so many micro-batches.
StepEstimate estimate_step(const Graph& graph, std::span<Node* const> order,
                           const DeviceSpec& device, int64_t micro_batches);

}  // namespace weft

// Estimates the time and memory of a step from an order of nodes. Time is that of the lowered plan
// (clocks.h). Memory is the sum of live values, before any in-place reuse.
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
  int64_t peak_bytes = 0;        // largest sum of live bytes of other values, per rank
};

// Memory of one rank while the nodes run in this order.
struct MemoryCurve {
  int64_t persistent_bytes = 0;     // sources
  std::vector<int64_t> live_bytes;  // of other values: during each node, and after the last

  int64_t peak_bytes() const { return *std::max_element(live_bytes.begin(), live_bytes.end()); }
};

MemoryCurve memory_curve(const Graph& graph, std::span<Node* const> order);

// The estimate of one optimizer step with `micro_batches` micro-batches.
StepEstimate estimate_step(const Graph& graph, std::span<Node* const> order,
                           const DeviceSpec& device, int64_t micro_batches);

}  // namespace weft

// What a step would take, read off an order of nodes: compute runs one node after the other,
// started gathers and reductions run beside it on a stream each, a wait holds compute up. Memory is
// the sum of what is live, before any reuse in place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "config/device_spec.h"
#include "graph/graph.h"

namespace weft {

struct StepEstimate {
  double seconds = 0;             // of the whole step
  double compute_seconds = 0;     // of that, computing
  double collective_seconds = 0;  // of all collectives, hidden or not
  int64_t persistent_bytes = 0;   // sources, per rank
  int64_t peak_bytes = 0;         // most bytes of other values live at once, per rank

  double exposed_seconds() const { return seconds - compute_seconds; }
};

// What one rank holds while the nodes run in this order.
struct MemoryCurve {
  int64_t persistent_bytes = 0;     // sources
  std::vector<int64_t> live_bytes;  // of other values: during each node, and behind the last

  int64_t peak_bytes() const { return *std::max_element(live_bytes.begin(), live_bytes.end()); }
};

MemoryCurve memory_curve(const Graph& graph, std::span<Node* const> order);

StepEstimate estimate_step(const Graph& graph, std::span<Node* const> order,
                           const DeviceSpec& device);

}  // namespace weft

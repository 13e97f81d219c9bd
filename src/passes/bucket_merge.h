// The rewrite behind the bucket pass: merges the lanes that a plan groups together.
#pragma once

#include "graph/graph.h"
#include "passes/param_lane.h"

namespace weft {

// The result of a merge.
struct MergeSummary {
  size_t buckets = 0;
  size_t merged = 0;    // of these, buckets of several lanes
  int64_t largest = 0;  // elements
  std::string largest_name = {};
};

// Merges the lanes of each group that have equal shapes.
MergeSummary merge_lanes(Graph& graph, const std::vector<ParamLane>& lanes, const BucketPlan& plan);

}  // namespace weft

// The edit behind the bucket pass: lanes that a plan puts together become one lane.
#pragma once

#include "graph/graph.h"
#include "passes/bucket_lane.h"

namespace weft {

// What a merge made of the lanes.
struct MergeSummary {
  size_t buckets = 0;
  size_t merged = 0;    // of these, made of several lanes
  int64_t largest = 0;  // elements
  std::string largest_name = {};
};

// Merges the lanes of each group as far as their shapes are equal.
MergeSummary merge_lanes(Graph& graph, const std::vector<Lane>& lanes, const BucketPlan& plan);

}  // namespace weft

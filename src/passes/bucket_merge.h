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

// Lets the backward read the forward's gather where nothing else is gathered between its last use
// in the forward and the second gather: dropping it there saves no memory that is needed. Gives the
// number of second gathers that are gone.
size_t reuse_fresh_gathers(Graph& graph);

}  // namespace weft

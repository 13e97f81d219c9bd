// Reads compile.overlap_with: which collectives are to overlap with the compute of which module.
#pragma once

#include <span>
#include <unordered_map>

#include "config/config.h"
#include "graph/graph.h"

namespace weft {

// Whether the node only hands a reduced value on: it can move down with the wait before it.
bool forwards(const Node& node);

// Positions in the order without overlap, from the first compute node of a module to one past the
// last. Empty (begin > end) if the module computes nothing in the phase of the collective.
struct ComputeRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// By start: the compute that the collective is to overlap with.
using OverlapRequests = std::unordered_map<const Node*, ComputeRange>;

// Throws UserError for an entry whose bucket or module does not exist.
OverlapRequests read_overlap_requests(std::span<Node* const> order, const Config& config);

}  // namespace weft

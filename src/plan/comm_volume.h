// What one rank exchanges with the others, read off a plan alone: collectives by kind and axis, the
// bytes they send, the buckets they move, and what had to be copied to bring a bucket together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace weft {

// Whether the step exchanges data with other ranks.
bool is_collective(const Step& step);
// The mesh axis of one that does.
std::string axis_of(const Step& step);

// The collectives of one kind over one axis. Sizes are those of the whole flat buffer, padding
// included, in the dtype that travels.
struct CollectiveVolume {
  std::string kind;  // "all_gather"
  std::string axis;
  int64_t ranks = 1;  // of the axis
  int64_t calls = 0;
  int64_t smallest = 0;
  int64_t largest = 0;
  int64_t sent_bytes = 0;  // by one rank, in all calls
  bool operator==(const CollectiveVolume&) const = default;
};

// In order of kind and axis; empty for a program without collectives. A gather or scatter sends
// (n-1)/n of the buffer, a sum twice that.
std::vector<CollectiveVolume> collective_volumes(const Plan& plan, ProgramKind program);

// Bytes of members that do not lie in the one buffer of their collective at their flat offsets, so
// that a copy would have to bring them there.
int64_t packing_bytes(const Plan& plan, ProgramKind program);

// The flat parameters that are cut over an axis, or else the sums of gradients in the backward.
struct BucketSize {
  std::string name;
  int64_t bytes = 0;  // of the whole bucket
  bool operator==(const BucketSize&) const = default;
};
std::vector<BucketSize> buckets_of(const Plan& plan);

}  // namespace weft

// Communication volume of one rank, computed from a plan alone: collectives by kind and axis, the
// bytes they send, the buckets they move, and the bytes copied to pack buckets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace weft {

// Whether the step is a collective.
bool is_collective(const Step& step);
// The mesh axis of a collective.
std::string axis_of(const Step& step);

// The collectives of one kind over one axis. Sizes are those of the full flat buffer, including
// padding, in the dtype that is sent.
struct CollectiveVolume {
  std::string kind;  // "all_gather"
  std::string axis;
  int64_t ranks = 1;  // of the axis
  int64_t calls = 0;
  int64_t smallest = 0;
  int64_t largest = 0;
  int64_t sent_bytes = 0;    // by one rank, in all calls
  int64_t packed_bytes = 0;  // copied by one rank to send or receive contiguous memory
  bool operator==(const CollectiveVolume&) const = default;
};

// Sorted by kind and axis; empty for a program without collectives. A gather or scatter sends
// (n-1)/n of the buffer, an all_reduce twice that.
std::vector<CollectiveVolume> collective_volumes(const Plan& plan, ProgramKind program);

// Bytes copied for packing by all collectives: members that are not at their flat offsets in the
// buffer of their collective, and tensors along a dim whose messages are packed in a workspace.
int64_t packing_bytes(const Plan& plan, ProgramKind program);

// The buckets of parameters sharded over an axis or, if there are none, those of gradient
// reductions in the backward.
struct BucketSize {
  std::string name;
  int64_t bytes = 0;  // of the full bucket
  bool operator==(const BucketSize&) const = default;
};
std::vector<BucketSize> buckets_of(const Plan& plan);

}  // namespace weft

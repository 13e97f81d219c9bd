// The gathers of the bucket pass: one for all members of a bucket, and one for both phases if the
// backward follows soon enough.
#pragma once

#include "passes/bucket_scope.h"

namespace weft {

// Merges the gathers of the lanes, role by role. The storage of the lanes is already merged.
void merge_gathers(BucketScope& scope, const Lanes& lanes);

// Lets the backward reuse the forward's gather if nothing else is gathered between its last use in
// the forward and the second gather: dropping it there would not lower the peak. Returns the number
// of second gathers removed.
size_t reuse_fresh_gathers(Graph& graph);

}  // namespace weft

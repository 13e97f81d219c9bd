// The mode "auto" of the bucket pass: makes a greedy plan from estimated times and compares it with
// the simple plans by the estimated time of the full step.
#pragma once

#include "passes/param_lane.h"
#include "passes/pass.h"

namespace weft {

// Closes a bucket when its gather would take longer than the compute before it, when memory is
// short, or when it holds a fifth of all parameters.
BucketPlan plan_greedily(const Graph& graph, const std::vector<ParamLane>& lanes,
                         const DeviceSpec& device);

// The fastest of the greedy, block, size and one-by-one plans that fits the device.
BucketPlan plan_automatically(const Graph& graph, const std::vector<ParamLane>& lanes,
                              const PassContext& context);

}  // namespace weft

// Predicts the time of a plan from its steps: each runs after the events that it waits for, on the
// clocks of graph/clocks.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "graph/clocks.h"
#include "plan/plan.h"

namespace weft {

struct ProgramTime : PlanTime {
  std::map<std::string, double> exposed_by_axis;  // the sum is exposed_seconds()
};

ProgramTime program_time(const Plan& plan, ProgramKind program);

// The time of one optimizer step with `micro_batches` micro-batches.
PlanTime step_time(const Plan& plan, int64_t micro_batches);

}  // namespace weft

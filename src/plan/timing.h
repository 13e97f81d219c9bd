// How long a plan would take on its device, read off its steps: each runs after the events that it
// waits for, on the clocks of graph/clocks.h.
#pragma once

#include <cstdint>

#include "graph/clocks.h"
#include "plan/plan.h"

namespace weft {

PlanTime program_time(const Plan& plan, ProgramKind program);

// One optimizer step over so many micro-batches.
PlanTime step_time(const Plan& plan, int64_t micro_batches);

}  // namespace weft

// How long a plan would take on its device, read off its steps: each stream runs its own one after
// the other, each after the events it waits for. Collectives over one axis share its link: beside
// each other they would take as long as one after the other.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace weft {

struct PlanTime {
  double seconds = 0;             // from the first step to the end of the last stream
  double compute_seconds = 0;     // of steps that are no collectives
  double collective_seconds = 0;  // of collectives, hidden or not

  // What the collectives add to the time of the computation.
  double exposed_seconds() const { return seconds - compute_seconds; }
};

PlanTime program_time(const Plan& plan, ProgramKind program);

// One optimizer step: `micro` for all micro-batches but the last, then `last`.
PlanTime step_time(const Plan& plan, int64_t micro_batches);

}  // namespace weft

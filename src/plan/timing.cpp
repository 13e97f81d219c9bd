// Walks the steps once and tracks the time of each event.
#include "plan/timing.h"

#include <algorithm>

#include "plan/comm_volume.h"

namespace weft {

PlanTime program_time(const Plan& plan, ProgramKind program) {
  Clocks clocks;
  std::vector<double> signalled(static_cast<size_t>(plan.num_events), 0.0);
  for (const Step& step : plan.program(program)) {
    double ready = 0;
    for (const int64_t event : step.waits) {
      ready = std::max(ready, signalled.at(static_cast<size_t>(event)));
    }
    const std::string axis = is_collective(step) ? axis_of(step) : std::string();
    const double end =
        clocks.run({.stream = step.stream, .axis = axis, .ready = ready, .seconds = step.seconds});
    if (step.signal >= 0) signalled.at(static_cast<size_t>(step.signal)) = end;
  }
  return clocks.time();
}

PlanTime step_time(const Plan& plan, int64_t micro_batches) {
  return step_time(program_time(plan, ProgramKind::Micro), program_time(plan, ProgramKind::Last),
                   micro_batches);
}

}  // namespace weft

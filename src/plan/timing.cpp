// One walk over the steps with a clock for each stream and each link and the time of each event.
#include "plan/timing.h"

#include <algorithm>
#include <map>

#include "plan/comm_volume.h"

namespace weft {

PlanTime program_time(const Plan& plan, ProgramKind program) {
  PlanTime time;
  std::vector<double> free(plan.streams.size(), 0.0);
  std::vector<double> signalled(static_cast<size_t>(plan.num_events), 0.0);
  std::map<std::string, double> link_free;  // by axis
  for (const Step& step : plan.program(program)) {
    double& now = free.at(static_cast<size_t>(step.stream));
    for (const int64_t event : step.waits) {
      now = std::max(now, signalled.at(static_cast<size_t>(event)));
    }
    if (is_collective(step)) {
      double& link = link_free[axis_of(step)];
      now = std::max(now, link);
      link = now + step.seconds;
    }
    now += step.seconds;
    if (step.signal >= 0) signalled.at(static_cast<size_t>(step.signal)) = now;
    (is_collective(step) ? time.collective_seconds : time.compute_seconds) += step.seconds;
  }
  if (!free.empty()) time.seconds = *std::max_element(free.begin(), free.end());
  return time;
}

PlanTime step_time(const Plan& plan, int64_t micro_batches) {
  PlanTime time = program_time(plan, ProgramKind::Last);
  if (micro_batches <= 1) return time;
  const PlanTime micro = program_time(plan, ProgramKind::Micro);
  const auto times = static_cast<double>(micro_batches - 1);
  time.seconds += times * micro.seconds;
  time.compute_seconds += times * micro.compute_seconds;
  time.collective_seconds += times * micro.collective_seconds;
  return time;
}

}  // namespace weft

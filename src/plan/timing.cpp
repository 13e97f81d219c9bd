// Walks the steps once and tracks the time of each event.
#include "plan/timing.h"

#include <algorithm>

#include "plan/comm_volume.h"

namespace weft {

namespace {

constexpr int64_t kCompute = index_of(StreamId::Compute);

// When an event is signalled, and the axis of the collective that does it; "" for computation.
struct Signal {
  double seconds = 0;
  std::string axis;
};

}  // namespace

ProgramTime program_time(const Plan& plan, ProgramKind program) {
  Clocks clocks;
  std::map<std::string, double> exposed;
  std::vector<Signal> signalled(static_cast<size_t>(plan.num_events));
  Signal last;
  for (const Step& step : plan.program(program)) {
    Signal ready;
    for (const int64_t event : step.waits) {
      const Signal& signal = signalled.at(static_cast<size_t>(event));
      if (signal.seconds > ready.seconds) ready = signal;
    }
    const std::string axis = is_collective(step) ? axis_of(step) : std::string();
    const double before = clocks.end_of(kCompute);
    const double end = clocks.run(
        {.stream = step.stream, .axis = axis, .ready = ready.seconds, .seconds = step.seconds});
    if (step.signal >= 0) signalled.at(static_cast<size_t>(step.signal)) = {end, axis};
    if (end > last.seconds) last = {end, axis};
    if (step.stream != kCompute) continue;
    // The computation stands still, or it is a collective itself.
    const double stall = std::max(0.0, ready.seconds - before);
    if (stall > 0) exposed[ready.axis] += stall;
    if (!axis.empty()) exposed[axis] += end - before - stall;
  }
  const double rest = last.seconds - clocks.end_of(kCompute);
  if (rest > 0) exposed[last.axis] += rest;
  return {clocks.time(), std::move(exposed)};
}

PlanTime step_time(const Plan& plan, int64_t micro_batches) {
  return step_time(program_time(plan, ProgramKind::Micro), program_time(plan, ProgramKind::Last),
                   micro_batches);
}

}  // namespace weft

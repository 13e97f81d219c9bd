// The page a person reads, and the golden that shows in its diff what a change costs: steps, FLOPs,
// peak memory by kind and at which step, the largest buffers, predicted time, and what a rank
// exchanges with others if there are any.
#pragma once

#include <string>

#include "plan/plan.h"

namespace weft {

// Live bytes of a rank's arena by kind at the step of `program` where their sum is largest.
struct Peak {
  std::array<int64_t, kBufferKinds> bytes{};
  int64_t total = 0;
  int64_t step = -1;
};
Peak peak_memory(const Plan& plan, ProgramKind program);

double program_flops(const Plan& plan, ProgramKind program);
// What its kernels read and write.
double program_traffic(const Plan& plan, ProgramKind program);

// "950 us": seconds at three digits in the unit that suits them.
std::string short_time(double seconds);

std::string summarize(const Plan& plan);

}  // namespace weft

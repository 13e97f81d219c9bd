// The plan's own checker, independent of the planner: no two live buffers overlap, every read has a
// write before it on the same stream or an event between, every reference is in bounds.
#pragma once

#include "plan/plan.h"

namespace weft {

// Throws InternalError naming program, step and buffers.
void check_plan(const Plan& plan);

}  // namespace weft

// Checks a plan independently of the planner: no two live buffers overlap, every read comes after a
// write on the same stream or after an event, every reference is in bounds.
#pragma once

#include "plan/plan.h"

namespace weft {

// Throws InternalError naming the program, step and buffers.
void check_plan(const Plan& plan);

}  // namespace weft

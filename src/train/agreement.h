// Before the first step, ranks check that they are about to run the same plan: ranks with different
// plans would wait for each other forever, or corrupt each other's data.
#pragma once

#include "config/config.h"
#include "plan/plan.h"
#include "runtime/comm/communicator.h"

namespace weft {

// Compares the config and plan of all ranks; every rank calls it. If they differ, all ranks throw
// the same UserError with the differing keys and the first differing line of the plans.
void check_agreement(const Config& config, const Plan& plan, Communicator& comm);

}  // namespace weft

// Before the first step ranks make sure that they are about to do the same: ranks with different
// plans would wait for each other for ever, or mix up each other's data.
#pragma once

#include "config/config.h"
#include "plan/plan.h"
#include "runtime/comm/communicator.h"

namespace weft {

// Compares config and plan of all ranks; every rank calls it. Where they differ, all of them throw
// the same UserError: which keys, and the first line of the plans that is not the same.
void check_agreement(const Config& config, const Plan& plan, Communicator& comm);

}  // namespace weft

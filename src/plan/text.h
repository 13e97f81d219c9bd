// Prints every field of a plan, parses it back to the same plan, and hashes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plan/plan.h"

namespace weft {

std::string print_plan(const Plan& plan);

// Throws UserError "line N: ..." for text that print_plan could not have written.
Plan parse_plan(std::string_view text);

uint64_t hash(const Plan& plan);

}  // namespace weft

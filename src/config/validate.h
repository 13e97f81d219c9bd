// Checks of a config that need more than one key or the number of ranks. What needs the model's
// sizes (heads that divide, a sequence that fits its table) is checked by the model.
#pragma once

#include <cstdint>

#include "config/config.h"
#include "config/open_set.h"

namespace weft {

// Throws UserError(Config) when keys contradict each other, when one that another needs is missing,
// when a value is in none of the open sets, or when the user set a key that has no effect in this
// run.
void validate(const Config& config, int64_t ranks, const OpenSets& sets);

}  // namespace weft

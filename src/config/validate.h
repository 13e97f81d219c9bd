// Checks of a config that involve several keys or the number of ranks. Checks that need the model's
// sizes (heads that divide, a sequence that fits its table) are in the model.
#pragma once

#include <cstdint>

#include "config/choices.h"
#include "config/config.h"

namespace weft {

// Throws UserError(Config) when keys contradict each other, when a required key is missing, when a
// value is not in its list, or when the user set a key that has no effect in this run.
void validate(const Config& config, int64_t ranks, const ConfigChoices& sets);

}  // namespace weft

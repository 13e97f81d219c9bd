// Additional checks for configs that run a training step. A plan alone may target a machine that
// does not exist, and omit the update.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace weft {

// Runs validate(), and throws UserError(Config) when the backend computes nothing or the step would
// not train.
void validate_run(const Config& config, int64_t ranks);

}  // namespace weft

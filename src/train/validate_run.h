// Checks of a config for what runs a training step, beyond those that a plan needs: a plan may be
// for a machine that is not there, and leave out the update.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace weft {

// validate(), and throws UserError(Config) when the backend computes nothing or the step would not
// train.
void validate_run(const Config& config, int64_t ranks);

}  // namespace weft

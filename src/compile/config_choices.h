// The lists of allowed values for some config keys, built from the folders' own lists of models and
// backends.
#pragma once

#include "config/choices.h"

namespace weft {

// model.name and device.backend.
const ConfigChoices& config_choices();

}  // namespace weft

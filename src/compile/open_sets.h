// The lists of allowed values for some config keys, built from the folders' own lists of models and
// backends.
#pragma once

#include "config/open_set.h"

namespace weft {

// model.name and device.backend.
const OpenSets& open_sets();

}  // namespace weft

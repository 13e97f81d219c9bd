// The lists that the values of some config keys come from. A model or a backend that is in its
// folder's list is in these: nothing is written twice.
#pragma once

#include "config/open_set.h"

namespace weft {

// model.name and device.backend.
const OpenSets& open_sets();

}  // namespace weft

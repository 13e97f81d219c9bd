// The communicator of a run with one rank and no mesh axes: nothing to wait for, nobody to tell.
#pragma once

#include "runtime/comm/communicator.h"

namespace weft {

// It has no state, so all such runs of a process share it.
Communicator& single_rank();

}  // namespace weft

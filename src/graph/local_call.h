// A call as one rank runs it: local shapes, and attributes such as the number of heads divided like
// them. Cost, lowering and kernels see local calls only.
#pragma once

#include "graph/op.h"

namespace weft {

Call local_call(const Call& call, const Mesh& mesh);

}  // namespace weft

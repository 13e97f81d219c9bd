// The degrees of the mesh that a pass works for.
#pragma once

#include "config/derived.h"
#include "graph/type.h"

namespace weft {

// Axes that the mesh does not have count as 1.
Degrees degrees_of(const Mesh& mesh);

}  // namespace weft

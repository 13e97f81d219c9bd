// Parses the samples of an op definition: "x: f32[2,8], w: f32[8]; eps=1e-6 | ...". Operands are
// named in signature order; an optional one may be missing, a variadic one is repeated.
#pragma once

#include <string_view>
#include <vector>

#include "graph/op.h"

namespace weft {

// The samples of `op` as calls with inferred results; throws InternalError naming the sample at
// fault.
std::vector<Call> parse_samples(const OpDef& op);

// Same for the given samples.
std::vector<Call> parse_samples(const OpDef& op, std::string_view samples);

}  // namespace weft

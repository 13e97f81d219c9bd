// The samples of an op definition as calls: "x: f32[2,8], w: f32[8]; eps=1e-6 | ...". Operands are
// named in signature order, an optional one may be missing, a variadic one is repeated.
#pragma once

#include <string_view>
#include <vector>

#include "graph/op.h"

namespace weft {

// The calls of `op`'s samples with results inferred; throws UserError naming the sample at fault.
std::vector<Call> parse_samples(const OpDef& op);

// The same for samples of the caller's.
std::vector<Call> parse_samples(const OpDef& op, std::string_view samples);

}  // namespace weft

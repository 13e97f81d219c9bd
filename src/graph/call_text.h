// Parsing helpers for the text of a call, shared by samples, graphs and the parts of fused ops.
#pragma once

#include <string_view>
#include <vector>

#include "graph/op.h"

namespace weft {

// Splits at each `separator` outside quotes and brackets and trims the parts; blank text has no
// parts.
std::vector<std::string_view> split_top_level(std::string_view text, char separator);

// Parses "eps=1e-6, tb=true" as the attributes of `op` and fills in defaults. Throws UserError for
// an unknown attribute or a missing required one.
Attrs parse_call_attrs(const OpDef& op, std::string_view text);

// The attributes that differ from their defaults as "; eps=1e-06", or "".
std::string print_call_attrs(const OpDef& op, const Attrs& attrs);

}  // namespace weft

// Pieces of text that describe a call, shared by samples and fused bodies.
#pragma once

#include <string_view>
#include <vector>

#include "graph/op.h"

namespace weft {

// Splits at `separator` where it stands outside quotes and brackets, and trims the pieces; a blank
// text has no pieces.
std::vector<std::string_view> split_top_level(std::string_view text, char separator);

// "eps=1e-6, tb=true" as the attributes of `op`, defaults filled in; throws UserError for an
// attribute that the op does not have and for a required one that is missing.
Attrs parse_call_attrs(const OpDef& op, std::string_view text);

// The attributes that differ from their defaults, "; eps=1e-06", or nothing.
std::string print_call_attrs(const OpDef& op, const Attrs& attrs);

}  // namespace weft

// The optimizer's update of a parameter, by roles instead of positions: any op with the trait
// `update` overwrites the parameter w by its gradient g, and may own states.
#pragma once

#include "graph/graph.h"

namespace weft {

// The update of a parameter, a bucket or one of their states, or nullptr if nothing updates it.
Node* update_of(const Value& stored);

// The state of the update in that role, or nullptr if it has none.
Value* state_of(const Node& update, StateRole role);

// The parameter or bucket whose values a gather sends, or nullptr if there is none. A gather may
// also send what the update writes: the new weights, or their low-precision copy.
const Node* gathered_storage(const Node& gather);

// The result that overwrites this operand, or nullptr if none does.
Value* overwriting(const Node& node, const Value& operand);

}  // namespace weft

// The decision behind the recompute pass: which forward nodes are not kept for the backward. Values
// outside blocks, values that cross a block boundary and nodes with effects are always kept, so
// that recomputation stays inside its block. Gathered weights are decided separately.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "passes/pass.h"

namespace weft {

// Whether a backward node reads the value.
bool is_read_backward(const Value& value);

// Bytes of the results that backward nodes read, per rank.
int64_t kept_bytes(const Node& node, const Mesh& mesh);

// Whether the node gathers a weight for the forward.
bool is_gathered_weight(const Node& node);

// The nodes not to keep: activations by activation_checkpoint.mode, gathered weights by
// parallelism.fsdp_reshard_after_forward alone. Throws UserError for options that name an unknown
// block or op.
std::unordered_set<const Node*> nodes_to_recompute(const Graph& graph, const PassContext& context);

}  // namespace weft

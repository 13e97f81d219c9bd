// The decision behind the recompute pass: which nodes of the forward the backward must not read.
// Values outside blocks, values that cross a block boundary and effects are never in it, so that a
// recomputation stays inside its block. Gathered weights are a decision of their own.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_set>

#include "passes/pass.h"

namespace weft {

// Number N of a path "layers.N" or "layers.N.rest"; -1 outside blocks.
int64_t block_of(std::string_view path);

// Whether a backward node reads the value.
bool is_read_backward(const Value& value);

// Bytes of the results that backward nodes read, per rank.
int64_t kept_bytes(const Node& node, const Mesh& mesh);

// Whether the node gathers a weight for the forward.
bool is_gathered_weight(const Node& node);

// Nodes not to be kept: by activation_checkpoint.mode, and gathered weights by
// parallelism.fsdp_reshard_after_forward alone. Throws UserError for options that name no block or
// no op.
std::unordered_set<const Node*> nodes_to_recompute(const Graph& graph, const PassContext& context);

}  // namespace weft

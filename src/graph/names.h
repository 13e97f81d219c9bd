// The names by which models, passes, the planner and the trainer refer to the same thing, each
// defined here once. Names of states and outputs follow from their roles (graph/roles.h).
#pragma once

#include <string>
#include <string_view>

namespace weft::names {

// Inputs that the trainer writes.
inline constexpr std::string_view kTokens = "tokens";
inline constexpr std::string_view kTargets = "targets";
inline constexpr std::string_view kPositions = "positions";  // of tokens in their documents
inline constexpr std::string_view kCount = "count";  // valid tokens of the step, over all ranks
inline constexpr std::string_view kRng = "rng";      // seed, step and first sample of dropout
inline constexpr std::string_view kLr = "lr";
inline constexpr std::string_view kMicro = "micro";            // number of the micro-batch
inline constexpr std::string_view kLossScale = "loss_scale";   // a state if it changes by itself
inline constexpr std::string_view kCoordinate = "coordinate";  // see coordinate()

// Outputs that the trainer reads.
inline constexpr std::string_view kLoss = "loss";
inline constexpr std::string_view kLogits = "logits";
inline constexpr std::string_view kGradNorm = "grad_norm";
inline constexpr std::string_view kExpertCounts = "expert_counts";
inline constexpr std::string_view kLostRows = "lost_rows";

// Transformer blocks are the modules "layers.0", "layers.1", ... (graph/module_path.h).
inline constexpr std::string_view kLayers = "layers";

// Mesh axes of data parallelism: copies of the parameters, and the shards of one copy.
inline constexpr std::string_view kReplicateAxis = "dp_replicate";
inline constexpr std::string_view kShardAxis = "dp_shard";
// Ranks that share the sequence, and ranks that share the work of every layer.
inline constexpr std::string_view kContextAxis = "cp";
inline constexpr std::string_view kTensorAxis = "tp";
// The same ranks numbered for experts: those that share the storage of an expert, and those that
// share the experts.
inline constexpr std::string_view kExpertDataAxis = "edp";
inline constexpr std::string_view kExpertAxis = "ep";

// The input with this rank's coordinate on a mesh axis: "coordinate.dp_shard".
inline std::string coordinate(std::string_view axis) {
  return std::string(kCoordinate).append(".").append(axis);
}

}  // namespace weft::names

// Whose a state or an output is, and in which role. The name in the text of graphs and plans is
// derived from the two, and read back: the state "m.output.weight" is the first moment of
// output.weight.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

enum class StateRole {
  FirstMoment,   // of the gradient of a parameter or bucket: "m.OWNER"
  SecondMoment,  // "v.OWNER"
  LowCopy,       // the parameter or bucket in the compute dtype, in the same layout: "low.OWNER"
  FullCopy,      // the full parameter that the step reads if its storage is sharded: "full.OWNER"
  GradientSum,   // over micro-batches: "grad.OWNER", in a tree "grad.level0.OWNER"
  LossSum,       // over micro-batches, in a tree: "loss.level0"
  CountSum,      // of tokens per expert, over micro-batches: "expert_counts.sum"
  LostSum,       // of rows without room, likewise: "lost_rows.sum"
  UpdateCount,   // the updates so far: "adam.count"
  LossScale,     // "loss_scale"
  GoodSteps,     // since the loss scale last changed: "loss_scale.good"
  Other,         // of a graph that no pass made: any other name, which is the owner
};

struct StateKey {
  StateRole role = StateRole::Other;
  std::string owner = {};  // a parameter or bucket; empty if it belongs to the entire step
  int64_t level = -1;      // of a sum in a tree; -1: a sequential sum
  auto operator<=>(const StateKey&) const = default;  // NOLINT(modernize-use-nullptr): not one
};

std::string to_string(const StateKey& key);
// What comes before the owner in the name of a state: "m." for FirstMoment.
std::string owner_prefix(StateRole role);
// The key with that name: the inverse of to_string.
StateKey parse_state_key(std::string_view name);

enum class OutputRole {
  Loss,          // "loss"
  Logits,        // "logits"
  GradientNorm,  // before clipping: "grad_norm"
  ExpertCounts,  // tokens per layer and expert: "expert_counts"
  LostRows,      // choices per layer without room among the rows of experts: "lost_rows"
  Gradient,      // of a parameter, for one micro-batch: "grad.OWNER"
  Other,         // of a graph that no model or pass made: any other name, which is the owner
};

struct OutputKey {
  OutputRole role = OutputRole::Other;
  std::string owner = {};  // a parameter; empty unless a gradient
  auto operator<=>(const OutputKey&) const = default;
};

std::string to_string(const OutputKey& key);
// The key with that name: the inverse of to_string.
OutputKey parse_output_key(std::string_view name);

}  // namespace weft

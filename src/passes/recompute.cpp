// Recomputes forward values in the backward instead of keeping them. The policy chooses the nodes
// not to keep. Each is cloned once, right before the first backward node that reads it, along with
// the dropped nodes it depends on. Randomness is counter-based, so the clone is bit-identical.
// Dropping a weight after the forward and gathering it again is the same rewrite: recomputed nodes
// and gradients share the one gather in the backward.
//
//   %u = matmul(%x, %w1) : f32[4,8]  # layers.0.feed_forward fwd
//   %g = gelu(%u) : f32[4,8]  # layers.0.feed_forward fwd
//   %d.u = gelu_grad(%d.g, %u) : f32[4,8]  # layers.0.feed_forward bwd
// becomes, if %u is not kept:
//   %u = matmul(%x, %w1) : f32[4,8]  # layers.0.feed_forward fwd
//   %g = gelu(%u) : f32[4,8]  # layers.0.feed_forward fwd
//   %u.again = matmul(%x, %w1) : f32[4,8]  # layers.0.feed_forward bwd recomputed
//   %d.u = gelu_grad(%d.g, %u.again) : f32[4,8]  # layers.0.feed_forward bwd
#include <unordered_map>

#include "base/text.h"
#include "graph/ops/ops.h"
#include "passes/pass.h"
#include "passes/recompute_policy.h"

namespace weft {

namespace {

class Recomputer {
 public:
  Recomputer(Graph& graph, const std::unordered_set<const Node*>& dropped)
      : graph_(graph), dropped_(dropped) {}

  size_t run() {
    const std::vector<Node*> nodes = graph_.nodes();
    for (Node* node : nodes) {
      if (node->phase != Phase::Backward || node->recomputed) continue;
      for (size_t i = 0; i < node->operands.size(); ++i) {
        Value* value = node->operands[i];
        if (is_dropped(*value)) graph_.replace_operand(node, i, again(value, node));
      }
    }
    erase_moved(nodes);
    for (Node* node : graph_.nodes()) {
      if (node->recomputed && node->op == &kAllToAll) narrow_exchange(node);
    }
    return clones_.size();
  }

 private:
  // A decision stays the same wherever it is sent.
  bool is_dropped(const Value& value) const {
    const Node& def = *value.def;
    const bool decided = def.op == &kAllToAll && def.operands[value.index]->def->op->traits.decides;
    return dropped_.contains(&def) && !decided;
  }

  // The value, or, if it is not kept, its clone inserted before `before`.
  Value* again(Value* value, Node* before) {
    if (!is_dropped(*value)) return value;
    const Node* def = value->def;
    auto found = clones_.find(def);
    if (found != clones_.end()) return found->second->result(value->index);
    std::vector<Value*> operands;
    for (Value* operand : def->operands) operands.push_back(again(operand, before));
    Node* clone = graph_.clone(def, before, std::move(operands), ".again");
    clone->phase = Phase::Backward;
    clone->recomputed = true;
    clones_.emplace(def, clone);
    return clone->result(value->index);
  }

  // Sends only what is read, in place of a clone that sends the decisions as well.
  void narrow_exchange(Node* clone) {
    std::vector<Value*> operands, read;
    std::vector<std::string> names;
    for (const auto& value : clone->results) {
      if (value->users.empty()) continue;
      operands.push_back(clone->operands[value->index]);
      read.push_back(value.get());
    }
    if (read.size() == clone->results.size()) return;
    if (std::get<bool>(clone->attr("bounded"))) operands.push_back(clone->operands.back());
    for (Value* value : read) {
      names.push_back(value->name);
      graph_.rename(value, value->name + ".all");
    }
    Node* narrow = graph_.insert(
        clone, kAllToAll, std::move(operands), clone->attrs,
        {.path = clone->path, .phase = clone->phase, .result_names = std::move(names)});
    narrow->recomputed = true;
    for (size_t i = 0; i < read.size(); ++i) graph_.replace_uses(read[i], narrow->result(i));
    graph_.erase(clone);
  }

  // A forward node that only the backward reads is no longer needed in the forward.
  void erase_moved(const std::vector<Node*>& nodes) {
    std::unordered_set<const Value*> outputs;
    for (const auto& output : graph_.outputs()) outputs.insert(output.value);
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (!clones_.contains(*node)) continue;
      bool used = false;
      for (const auto& value : (*node)->results) {
        used |= !value->users.empty() || outputs.contains(value.get());
      }
      if (!used) graph_.erase(*node);
    }
  }

  Graph& graph_;
  const std::unordered_set<const Node*>& dropped_;
  std::unordered_map<const Node*, Node*> clones_;
};

// What the forward keeps for the backward: "12 values, 3.5 MiB", or with gathered weights "12
// values, 3.5 MiB, and 3 gathered weights, 1.2 MiB".
std::string kept_text(const Graph& graph) {
  struct Kept {
    size_t values = 0;
    int64_t bytes = 0;
  };
  Kept activations;
  Kept weights;
  bool has_gathers = false;
  for (const auto& node : graph.order()) {
    if (node->phase != Phase::Forward || node->op->traits.source) continue;
    has_gathers |= is_gathered_weight(*node);
    Kept& kept = is_gathered_weight(*node) ? weights : activations;
    for (const auto& value : node->results) kept.values += is_read_backward(*value) ? 1 : 0;
    kept.bytes += kept_bytes(*node, graph.mesh());
  }
  const auto bytes = [](const Kept& kept) { return human_bytes(static_cast<double>(kept.bytes)); };
  std::string text = cat(activations.values, " values, ", bytes(activations));
  if (has_gathers) text += cat(", and ", weights.values, " gathered weights, ", bytes(weights));
  return text;
}

bool run(Graph& graph, PassContext& context) {
  if (context.goal == Goal::Evaluate) {
    context.note = "no backward in evaluation";
    return false;
  }
  const std::string before = kept_text(graph);
  const auto dropped = nodes_to_recompute(graph, context);
  const size_t clones = Recomputer(graph, dropped).run();
  context.note = clones == 0 ? cat("kept ", before)
                             : cat("kept ", before, " -> ", kept_text(graph), "; ", clones,
                                   " nodes recomputed");
  return clones != 0;
}

}  // namespace

constexpr Pass recompute{
    .name = "recompute",
    .doc =
        "Recomputes forward values in the backward instead of keeping them: all values inside "
        "blocks, those of some blocks, all but the results of some ops, or those that save the "
        "most bytes per second of recomputation until a memory budget is met. Gathered weights are "
        "dropped and gathered again unless parallelism.fsdp_reshard_after_forward is never. The "
        "bits do not change.",
    .needs = {},
    .gives = {},
    .run = run,
};

}  // namespace weft

// Turns the modes none, full, selective and memory_budget into sets of nodes, and adds gathered
// weights.
#include "passes/recompute_policy.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "config/derived.h"
#include "graph/comm_cost.h"
#include "graph/module_path.h"
#include "graph/ops/ops.h"

namespace weft {

namespace {

using NodeSet = std::unordered_set<const Node*>;

bool is_kept(const Node& node) {
  return std::any_of(node.results.begin(), node.results.end(),
                     [](const auto& value) { return is_read_backward(*value); });
}

bool leaves_block(const Node& node, int64_t block) {
  for (const auto& value : node.results) {
    for (const Node* user : value->users) {
      if (user->phase == Phase::Forward && block_of(user->path) != block) return true;
    }
  }
  return false;
}

// A decision stays the same wherever it is sent.
bool is_decision(const Node& node) {
  if (!node.op->traits.collective) return node.op->traits.decides;
  return std::all_of(node.operands.begin(), node.operands.end(),
                     [](const Value* value) { return is_decision(*value->def); });
}

// Forward nodes inside blocks that may be recomputed, in order.
std::vector<const Node*> recomputable(const Graph& graph) {
  std::vector<const Node*> list;
  for (const auto& node : graph.order()) {
    const OpDef& op = *node->op;
    if (node->phase != Phase::Forward || op.traits.source || op.traits.effect) continue;
    if (is_flat_collective(*node) || !op.overwrites.empty()) continue;
    if (is_decision(*node)) continue;
    const int64_t block = block_of(node->path);
    if (block < 0 || leaves_block(*node, block)) continue;
    list.push_back(node.get());
  }
  return list;
}

NodeSet select(const Graph& graph, const std::function<bool(const Node&)>& chosen) {
  NodeSet set;
  for (const Node* node : recomputable(graph)) {
    if (chosen(*node)) set.insert(node);
  }
  return set;
}

// A partial sum is not kept, but what it is reduced to: that is the result of the op. Likewise what
// the sum over all blocks of keys, in f32, is rounded to.
const Node& computing_node(const Node& node) {
  if (node.op == &kReduceScatter) return *node.variadic("g").front()->def;
  const bool rounds = node.op == &kCast && node.operand("x")->def->op == &kContextAttentionMore;
  return rounds ? *node.operand("x")->def : node;
}

// Everything but the results of save_ops.
NodeSet select_by_op(const Graph& graph, const Config& config) {
  const auto& saved = config.activation_checkpoint.save_ops;
  for (const auto& name : saved) {
    USER_CHECK(find_op(name) != nullptr, describe_key(config, "activation_checkpoint.save_ops"),
               ": ", unknown_op(name));
  }
  const auto is_saved = [&](const OpDef& op) {
    return std::find(saved.begin(), saved.end(), op.name()) != saved.end();
  };
  return select(graph, [&](const Node& node) {
    const OpDef& op = *computing_node(node).op;
    // What place makes of the other two.
    const bool attends = &op == &kContextAttention || &op == &kContextAttentionMore;
    return !is_saved(op) && !(attends && (is_saved(kAttention) || is_saved(kDocumentAttention)));
  });
}

NodeSet select_blocks(const Graph& graph, const Config& config, const SelectiveOption& option) {
  int64_t last = -1;
  for (const auto& node : graph.order()) last = std::max(last, block_of(node->path));
  const bool every = option.kind == SelectiveOption::Kind::EveryKth;
  USER_CHECK(every || last < 0 || option.block <= last,
             describe_key(config, "activation_checkpoint.selective_ac_option"),
             ": the last block is ", last, "; name a block up to ", last);
  return select(graph, [&](const Node& node) {
    const int64_t block = block_of(node.path);
    return every ? block % option.block == 0 : block >= option.block;
  });
}

// The device and mesh that a recomputation runs on.
struct Machine {
  const Mesh& mesh;
  const DeviceSpec& device;
};

// Time to recompute a node from the values that mode none keeps.
double recompute_seconds(const Node& node, const NodeSet& allowed, const Machine& machine,
                         NodeSet& counted) {
  double seconds = local_seconds(node.call(), machine.mesh, machine.device);
  for (const Value* operand : node.operands) {
    const Node* def = operand->def;
    if (!allowed.contains(def) || is_kept(*def) || !counted.insert(def).second) continue;
    seconds += recompute_seconds(*def, allowed, machine, counted);
  }
  return seconds;
}

// Drops the values that save the most bytes per second of recomputation until the rest fits.
NodeSet select_by_budget(const Graph& graph, const PassContext& context) {
  struct Candidate {
    const Node* node;
    int64_t bytes;
    double bytes_per_second;
  };
  const Machine machine{graph.mesh(), context.device};
  const std::vector<const Node*> list = recomputable(graph);
  const NodeSet allowed(list.begin(), list.end());
  std::vector<Candidate> candidates;
  NodeSet dropped;
  int64_t kept = 0;
  for (const Node* node : list) {
    if (!is_kept(*node)) {
      dropped.insert(node);  // mode none does not keep it either: chains are recomputed through it
      continue;
    }
    NodeSet counted;
    const double seconds = recompute_seconds(*node, allowed, machine, counted);
    const int64_t bytes = kept_bytes(*node, graph.mesh());
    candidates.push_back({node, bytes, static_cast<double>(bytes) / seconds});
    kept += bytes;
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.bytes_per_second > b.bytes_per_second;
  });
  const double budget =
      context.config.activation_checkpoint.memory_budget * static_cast<double>(kept);
  for (const Candidate& candidate : candidates) {
    if (static_cast<double>(kept) <= budget) break;
    dropped.insert(candidate.node);
    kept -= candidate.bytes;
  }
  return dropped;
}

// Whether the node gathers a value inside a block, or receives that of another rank. What is sent
// is kept, and is smaller than all of it. At the head, the backward follows at once and reads the
// gathered value.
bool is_received_activation(const Node& node) {
  const bool receives = is_gather(*node.op) || node.op == &kShift;
  return receives && !is_flat_collective(node) && node.phase == Phase::Forward &&
         block_of(node.path) >= 0;
}

// Repeating heads of a weight is a copy, and the copy is larger than the weight.
bool is_repeated_weight(const Node& node) {
  return node.op == &kRepeatKv && node.phase == Phase::Forward;
}

NodeSet select_by_mode(const Graph& graph, const PassContext& context) {
  const Config& config = context.config;
  switch (config.activation_checkpoint.mode) {
    case RecomputeMode::None:
      return {};
    case RecomputeMode::Full:
      return select(graph, [](const Node&) { return true; });
    case RecomputeMode::Selective: {
      const SelectiveOption option = selective_option(config);
      return option.kind == SelectiveOption::Kind::ByOp ? select_by_op(graph, config)
                                                        : select_blocks(graph, config, option);
    }
    case RecomputeMode::MemoryBudget:
      return select_by_budget(graph, context);
  }
  throw InternalError("unknown recompute mode");
}

}  // namespace

bool is_read_backward(const Value& value) {
  return std::any_of(value.users.begin(), value.users.end(),
                     [](const Node* user) { return user->phase == Phase::Backward; });
}

int64_t kept_bytes(const Node& node, const Mesh& mesh) {
  int64_t bytes = 0;
  for (const auto& value : node.results) {
    if (is_read_backward(*value)) bytes += local_bytes(value->type, mesh);
  }
  return bytes;
}

bool is_gathered_weight(const Node& node) {
  return is_gather(*node.op) && is_flat_collective(node) && node.phase == Phase::Forward &&
         !has_effect(node.call());
}

std::unordered_set<const Node*> nodes_to_recompute(const Graph& graph, const PassContext& context) {
  NodeSet set = select_by_mode(graph, context);
  for (const auto& node : graph.order()) {
    if (is_received_activation(*node) || is_repeated_weight(*node)) set.insert(node.get());
  }
  if (context.config.parallelism.fsdp_reshard_after_forward == ReshardPolicy::Never) return set;
  for (const auto& node : graph.order()) {
    if (is_gathered_weight(*node)) set.insert(node.get());
  }
  return set;
}

}  // namespace weft

// The runner: facts, timing, the check of "changed" against the graph hash, verification, dumps and
// the report, written once for all passes.
#include "passes/pass.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "config/derived.h"
#include "graph/ops/ops.h"
#include "graph/parts.h"
#include "graph/sharding.h"
#include "graph/sources.h"
#include "graph/text.h"
#include "graph/verify.h"

namespace weft {

namespace {

bool contains(std::span<const Fact> facts, Fact fact) {
  return std::find(facts.begin(), facts.end(), fact) != facts.end();
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Facts that can be read off a graph, so that single passes can run on dumped graphs.
std::set<Fact> facts_of(const Graph& graph, const Mesh& mesh) {
  std::set<Fact> facts;
  if (graph.mesh() == mesh) facts.insert(Fact::Placed);
  if (mesh.axes.empty()) facts.insert(Fact::Sharded);
  for (const auto& node : graph.order()) {
    if (node->phase == Phase::Backward) facts.insert(Fact::Differentiated);
    if (node->phase == Phase::Optimizer) facts.insert(Fact::Updated);
  }
  return facts;
}

// If the step is not distributed, each rank would train its own model.
void check_distributes(const Config& config, std::span<const Pass* const> passes,
                       const Mesh& mesh) {
  for (const Pass* pass : passes) {
    const bool distributes =
        contains(pass->gives, Fact::Placed) || contains(pass->gives, Fact::Sharded);
    const bool is_off = contains(config.compile.disable_passes, pass->name);
    USER_CHECK(mesh.ranks() == 1 || !distributes || !is_off,
               describe_key(config, "compile.disable_passes"), ": ", mesh.ranks(), " ranks need ",
               pass->name, "; leave it on, or run one rank");
  }
}

// Throws UserError for a fact the pass needs that no earlier pass gives.
void check_needs(const Pass& pass, const std::set<Fact>& facts, std::span<const Pass* const> passes,
                 const Config& config) {
  for (Fact need : pass.needs) {
    if (facts.contains(need)) continue;
    for (const Pass* giver : passes) {
      const bool is_off = contains(config.compile.disable_passes, giver->name);
      USER_CHECK(!contains(giver->gives, need) || !is_off,
                 describe_key(config, "compile.disable_passes"), ": ", giver->name,
                 " cannot be disabled, ", pass.name, " needs it; disable ", pass.name, " too");
    }
    for (const Pass* giver : all_passes()) {
      USER_CHECK(!contains(giver->gives, need), pass.name, ": the graph is not ", fact_name(need),
                 "; run ", giver->name, " before ", pass.name);
    }
  }
}

void check_differentiated(const Graph& graph) {
  for (const auto& node : graph.order()) {
    if (node->op != &kParam || !is_trained(*node)) continue;
    const std::string& name = source_name(*node);
    CHECK(graph.find_output({OutputRole::Gradient, name}) != nullptr, "parameter ", name,
          " has no gradient");
  }
}

void check_updated(const Graph& graph) {
  std::unordered_map<const Value*, int> updates;
  for (const auto& node : graph.order()) {
    if (node->op->overwrites.empty()) continue;
    for (int operand : overwritten_operands(node->call())) {
      if (operand >= 0) ++updates[node->operands.at(static_cast<size_t>(operand))];
    }
  }
  for (const auto& node : graph.order()) {
    if (node->op != &kParam && node->op != &kBucket) continue;
    const bool is_constant = node->op == &kParam && !is_trained(*node);
    if (is_constant && updates[node->result()] == 0) continue;
    CHECK(updates[node->result()] == 1, "parameter %", node->result()->name, " is updated ",
          updates[node->result()], " times");
  }
}

// Whether the result is sharded along a dim that no operand has: each rank computes its own part.
bool is_made(const Node& node, const Value& value, const AxisPlacement& entry) {
  if (entry.kind != PlacementKind::Sharded || node.op->located == '\0') return false;
  const RuleDims dims = rule_dims(node.call());
  const RuleDim& dim = dims.results.at(value.index).at(static_cast<size_t>(entry.dim));
  return dim.letter == node.op->located &&
         std::all_of(dims.operands.begin(), dims.operands.end(),
                     [&](const auto& operand) { return find_dim(operand, dim) < 0; });
}

// Skips ops whose placements verify checks; updates and what they overwrite, which
// shard_params places along with the parameters; and fused nodes, which keep the placements of the
// nodes they replace.
void check_placed(const Graph& graph, bool sharded) {
  if (graph.mesh().axes.empty()) return;
  for (const auto& node : graph.order()) {
    const OpDef& op = *node->op;
    if (op.traits.source || op.traits.places || &op == &kWait) continue;
    if (!op.parts.empty()) continue;
    if (!sharded && (node->phase == Phase::Optimizer || !op.overwrites.empty())) continue;
    const std::vector<Placement> placements = result_placements(node->call(), graph.mesh());
    for (const auto& value : node->results) {
      const Placement found = by_dense_axes(value->type.placement, graph.mesh());
      TensorType expected = value->type;
      expected.placement = placements.at(value->index);
      for (const AxisPlacement& entry : found) {
        if (is_made(*node, *value, entry)) expected.placement.push_back(entry);
      }
      CHECK(std::is_permutation(found.begin(), found.end(), expected.placement.begin(),
                                expected.placement.end()),
            print_node(*node), ": the operands of %", value->name, " make it ",
            to_string(expected));
    }
  }
}

// Whether a partial sum as this operand makes the results partial sums.
bool passes_sums(const Node& node, size_t operand) {
  if (!node.op->parts.empty()) {
    const std::vector<Part> parts = parts_of(node.call());
    return std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
      const bool reads =
          std::any_of(part.operands.begin(), part.operands.end(), [&](const PartPlace& place) {
            return place.kind == PartPlace::Kind::Operand && place.index == operand;
          });
      return !reads || is_linear(*part.call.op) || is_bilinear(part.call);
    });
  }
  return is_linear(*node.op) || is_bilinear(node.call());
}

// A partial sum may be added to others and cast; any other reader needs the reduced value.
void check_sharded(const Graph& graph) {
  for (const auto& node : graph.order()) {
    for (size_t i = 0; i < node->operands.size(); ++i) {
      const Value* operand = node->operands[i];
      if (!is_partial(operand->type) || node->op->traits.collective) continue;
      CHECK(passes_sums(*node, i) && is_partial(node->result()->type), print_node(*node), ": %",
            operand->name, " is a partial sum");
    }
  }
  for (const auto& output : graph.outputs()) {
    CHECK(!is_partial(output.value->type), "output ", output.name(), " is a partial sum");
  }
}

// `given` are the facts that passes of this run have established; only those are checked.
void check_graph(const Graph& graph, const std::set<Fact>& given) {
  verify(graph);
  if (given.contains(Fact::Updated)) {
    check_updated(graph);
  } else if (given.contains(Fact::Differentiated)) {
    check_differentiated(graph);
  }
  if (given.contains(Fact::Placed)) check_placed(graph, given.contains(Fact::Sharded));
  if (given.contains(Fact::Sharded)) check_sharded(graph);
}

class Runner {
 public:
  Runner(Graph& graph, std::span<const Pass* const> passes, const RunOptions& options)
      : graph_(graph),
        passes_(passes),
        options_(options),
        mesh_(options.mesh.axes.empty() ? graph.mesh() : options.mesh),
        facts_(facts_of(graph, mesh_)) {}

  std::vector<PassReport> run(const Config& config, const DeviceSpec& device) {
    const std::vector<std::string>& disabled = config.compile.disable_passes;
    check_pass_names(disabled, describe_key(config, "compile.disable_passes"));
    check_distributes(config, passes_, mesh_);
    hash_ = hash(graph_);
    std::vector<PassReport> reports;
    for (size_t i = 0; i < passes_.size(); ++i) {
      const Pass& pass = *passes_[i];
      if (contains(disabled, pass.name)) {
        reports.push_back({.pass = std::string(pass.name),
                           .disabled = true,
                           .nodes_before = graph_.size(),
                           .nodes_after = graph_.size()});
        continue;
      }
      check_needs(pass, facts_, passes_, config);
      char dump_name[64];
      std::snprintf(dump_name, sizeof dump_name, "%02zu-%s", i + 1, std::string(pass.name).c_str());
      PassContext context{.config = config,
                          .device = device,
                          .mesh = mesh_,
                          .goal = options_.goal,
                          .buckets = options_.buckets};
      reports.push_back(run_one(pass, dump_name, context));
    }
    return reports;
  }

 private:
  PassReport run_one(const Pass& pass, const std::string& dump_name, PassContext& context) {
    PassReport report{.pass = std::string(pass.name), .nodes_before = graph_.size()};
    if (options_.dump) options_.dump(dump_name, graph_, false);
    const auto start = std::chrono::steady_clock::now();
    report.changed = pass.run(graph_, context);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    report.milliseconds = time.count();
    report.nodes_after = graph_.size();
    report.note = context.note;
    // Dumped before the checks, so that a failing graph can be inspected.
    if (options_.dump) options_.dump(dump_name, graph_, true);
    check_result(pass, report.changed);
    return report;
  }

  void check_result(const Pass& pass, bool changed) {
    for (Fact fact : pass.gives) {
      facts_.insert(fact);
      const bool of_training = fact == Fact::Differentiated || fact == Fact::Updated;
      if (options_.goal == Goal::Train || !of_training) given_.insert(fact);
    }
    const uint64_t after = hash(graph_);
    if (changed != (after != hash_)) {
      throw InternalError(cat("pass ", pass.name,
                              changed ? " says changed but the graph is the same"
                                      : " says unchanged but the graph differs"));
    }
    hash_ = after;
    if (!changed) return;
    try {
      check_graph(graph_, given_);
    } catch (const std::exception& error) {
      throw InternalError(cat("after pass ", pass.name, ": ", error.what()));
    }
  }

  Graph& graph_;
  std::span<const Pass* const> passes_;
  const RunOptions& options_;
  const Mesh mesh_;
  std::set<Fact> facts_;  // read off the graph or given so far
  std::set<Fact> given_;  // given by passes of this run
  uint64_t hash_ = 0;
};

}  // namespace

std::string_view fact_name(Fact fact) {
  switch (fact) {
    case Fact::Differentiated:
      return "differentiated";
    case Fact::Updated:
      return "updated";
    case Fact::Placed:
      return "placed";
    case Fact::Sharded:
      return "sharded";
  }
  throw InternalError("unknown fact");
}

void check_pass_names(const std::vector<std::string>& names, const std::string& subject) {
  std::vector<std::string> known;
  for (const Pass* pass : all_passes()) known.emplace_back(pass->name);
  for (const auto& name : names) {
    if (contains(known, name)) continue;
    const auto near = nearest(name, known);
    throw UserError(ExitCode::Config,
                    cat(subject, ": no pass ", in_quotes(name), ", there are ", join(known, ", "),
                        near ? cat("; did you mean \"", *near, "\"?") : ""));
  }
}

std::vector<PassReport> run_passes(Graph& graph, std::span<const Pass* const> passes,
                                   const Config& config, const DeviceSpec& device,
                                   const RunOptions& options) {
  return Runner(graph, passes, options).run(config, device);
}

std::string to_string(const std::vector<PassReport>& reports) {
  size_t width = 0;
  for (const auto& report : reports) width = std::max(width, report.pass.size());
  std::string text;
  for (size_t i = 0; i < reports.size(); ++i) {
    const PassReport& report = reports[i];
    char head[96];
    std::snprintf(head, sizeof head, "%02zu %-*s  ", i + 1, static_cast<int>(width),
                  report.pass.c_str());
    text += head;
    if (report.disabled) {
      text += "disabled\n";
      continue;
    }
    std::snprintf(head, sizeof head, "%7.1f ms  ", report.milliseconds);
    text += head;
    text += report.changed ? cat("nodes ", report.nodes_before, " -> ", report.nodes_after)
                           : std::string("unchanged");
    text += report.note.empty() ? "\n" : cat("  ", report.note, "\n");
  }
  return text;
}

}  // namespace weft

// Lowering in three parts: which nodes each program keeps, which buffers are bound from outside
// (the same in all programs), and a walk of each program that gives every other value a transient
// buffer. A result that overwrites an operand, or an elementwise result whose operand dies with it,
// takes that operand's buffer.
#include "plan/lower.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "graph/cost.h"
#include "graph/ops/ops.h"
#include "plan/check.h"
#include "plan/memory.h"

namespace weft {
namespace {

using Nodes = std::vector<const Node*>;

TensorType local_type(const Value& value, const Mesh& mesh) {
  return {value.type.dtype, local_shape(value.type, mesh), {}};
}

// The nodes of a program in order. Micro: without the optimizer and what only it needs.
Nodes kept_nodes(const ProgramSource& source) {
  Nodes kept;
  for (const auto& node : source.graph->order()) kept.push_back(node.get());
  if (source.kind != ProgramKind::Micro) return kept;

  std::unordered_set<const Node*> needed;
  for (const Graph::Output& output : source.graph->outputs()) needed.insert(output.value->def);
  Nodes live;
  for (auto it = kept.rbegin(); it != kept.rend(); ++it) {
    const Node* node = *it;
    if (node->phase == Phase::Optimizer && !node->op->traits.source) continue;
    if (!needed.count(node) && !node->op->traits.effect) continue;
    for (const Value* operand : node->operands) needed.insert(operand->def);
    live.push_back(node);
  }
  std::reverse(live.begin(), live.end());
  return live;
}

// The value whose buffer a value lies in: itself, or the one it is written over, and so on.
using Roots = std::unordered_map<const Value*, const Value*>;

Roots find_roots(const Nodes& nodes) {
  Roots roots;
  for (const Node* node : nodes) {
    const std::vector<int> overwritten = node->op->overwrites.empty()
                                             ? std::vector<int>(node->results.size(), -1)
                                             : overwritten_operands(node->call());
    for (size_t i = 0; i < node->results.size(); ++i) {
      const Value* result = node->result(i);
      roots[result] = overwritten[i] < 0 ? result : roots.at(node->operands.at(overwritten[i]));
    }
  }
  return roots;
}

// One graph on its way to a program.
struct Program {
  ProgramKind kind;
  const Graph* graph = nullptr;
  Nodes nodes;
  Roots roots;
  std::unordered_map<const Value*, int64_t> buffers;  // by root
};

// Buffers bound from outside, one per name over all programs.
class Bindings {
 public:
  explicit Bindings(Plan& plan) : plan_(plan) {}

  // Binds the sources of one op; called op by op, so that a kind of buffer lies in one piece.
  void add_sources(Program& program, const OpDef& op) {
    for (const Node* node : program.nodes) {
      if (node->op != &op) continue;
      const std::string& name = std::get<std::string>(node->attr("name"));
      const Value* value = node->result();
      if (&op == &kParam) {
        program.buffers[value] = bind(plan_.params, name, value, BufferKind::Param);
      } else if (&op == &kState) {
        program.buffers[value] = bind(plan_.states, name, value, BufferKind::Optimizer);
      } else {
        program.buffers[value] = bind(plan_.inputs, name, value, BufferKind::Input);
      }
    }
  }

  // After the sources of all programs: an output may be a source, or written over one.
  void add_outputs(Program& program) {
    for (const Graph::Output& output : program.graph->outputs()) {
      const auto found = program.roots.find(output.value);
      if (found == program.roots.end()) continue;  // not computed by this program
      const Value* root = found->second;
      const auto bound = program.buffers.find(root);
      const int64_t existing = bound == program.buffers.end() ? -1 : bound->second;
      program.buffers[root] =
          bind(plan_.outputs, output.name, output.value, BufferKind::Output, existing);
    }
  }

 private:
  // The buffer of that name; a new binding to `existing`, or to a new buffer, if there is none.
  int64_t bind(std::vector<Binding>& list, const std::string& name, const Value* value,
               BufferKind kind, int64_t existing = -1) {
    const TensorType type = local_type(*value, plan_.mesh);
    const auto [it, added] =
        by_name_.try_emplace(name, TensorRef{existing, type.dtype, type.shape});
    TensorRef& ref = it->second;
    if (!added) {
      CHECK(ref.dtype == type.dtype && ref.shape == type.shape, name, " is ", to_string(type),
            " in one program, ", to_string(TensorType{ref.dtype, ref.shape, {}}), " in another");
      CHECK(existing == -1 || existing == ref.buffer, name, " lies in two buffers");
      return ref.buffer;
    }
    if (existing == -1) {
      ref.buffer = static_cast<int64_t>(plan_.buffers.size());
      plan_.buffers.push_back(
          {.name = name, .kind = kind, .bytes = tensor_bytes(ref), .persistent = true});
    }
    list.push_back({name, ref});
    return ref.buffer;
  }

  Plan& plan_;
  std::map<std::string, TensorRef, std::less<>> by_name_;
};

// A gradient on its way to the update or to an accumulator.
bool is_gradient(const Value& value) {
  if (value.def->phase != Phase::Backward) return false;
  return std::any_of(value.users.begin(), value.users.end(), [](const Node* user) {
    return user->phase == Phase::Optimizer || !user->op->overwrites.empty();
  });
}

// Emits the steps of one program.
class Emitter {
 public:
  Emitter(Plan& plan, Program& program, const LowerOptions& options)
      : plan_(plan), program_(program), options_(options) {
    int64_t index = 0;
    for (const Node* node : program.nodes) {
      if (node->op->traits.source) continue;
      for (const Value* operand : node->operands) last_use_[program.roots.at(operand)] = index;
      for (const auto& result : node->results) last_use_[program.roots.at(result.get())] = index;
      ++index;
    }
  }

  void run() {
    for (const Node* node : program_.nodes) {
      if (!node->op->traits.source) emit(*node);
    }
  }

 private:
  std::vector<Step>& steps() { return plan_.programs[static_cast<size_t>(program_.kind)]; }

  void emit(const Node& node) {
    const int64_t index = static_cast<int64_t>(steps().size());
    Call call{node.op, {}, {}, node.attrs};
    Step step;
    step.op = std::string(node.op->name());
    step.attrs = node.attrs;
    for (const Value* operand : node.operands) {
      call.operands.push_back(local_type(*operand, plan_.mesh));
      step.operands.push_back(ref(buffer_of(*operand), call.operands.back()));
    }
    for (const auto& result : node.results) {
      call.results.push_back(local_type(*result, plan_.mesh));
    }
    for (size_t i = 0; i < node.results.size(); ++i) {
      step.results.push_back(ref(result_buffer(*node.result(i), call, index), call.results[i]));
    }
    const Kernel& kernel =
        choose_kernel(options_.kernels, call, options_.backend, node.result()->name);
    step.kernel = std::string(kernel.name);
    const int64_t workspace_bytes = kernel.workspace ? kernel.workspace(call) : 0;
    if (workspace_bytes > 0) {
      step.workspace = add_buffer(node.result()->name + ".workspace", BufferKind::Workspace,
                                  workspace_bytes, index, index);
    }
    step.path = node.path;
    step.phase = node.phase;
    step.recomputed = node.recomputed;
    step.flops = cost_of(call).flops;
    step.seconds = predicted_seconds(call, options_.device);
    steps().push_back(std::move(step));
  }

  static TensorRef ref(int64_t buffer, const TensorType& type) {
    return {buffer, type.dtype, type.shape};
  }

  int64_t buffer_of(const Value& value) const {
    return program_.buffers.at(program_.roots.at(&value));
  }

  int64_t add_buffer(std::string name, BufferKind kind, int64_t bytes, int64_t first,
                     int64_t last) {
    plan_.buffers.push_back({.name = std::move(name),
                             .kind = kind,
                             .bytes = bytes,
                             .program = program_.kind,
                             .first = first,
                             .last = last});
    return static_cast<int64_t>(plan_.buffers.size()) - 1;
  }

  int64_t result_buffer(const Value& value, const Call& call, int64_t index) {
    const Value* root = program_.roots.at(&value);
    const int64_t last = last_use_.at(root);
    const auto known = program_.buffers.find(root);
    int64_t buffer = known == program_.buffers.end() ? -1 : known->second;
    if (buffer == -1 && value.index == 0) buffer = dying_operand(*value.def, call, index);
    if (buffer == -1) {
      const int64_t bytes = call.results[value.index].bytes();
      buffer = add_buffer(value.name, BufferKind::Activation, bytes, index, last);
    }
    program_.buffers[root] = buffer;
    Buffer& held = plan_.buffers[buffer];
    if (!held.persistent) held.last = std::max(held.last, last);
    const bool accumulator =
        root->def->op == &kState && root != &value && value.def->phase == Phase::Backward;
    if (accumulator || (!held.persistent && is_gradient(value))) held.kind = BufferKind::Gradient;
    return buffer;
  }

  // The transient buffer of an operand that ends here and may hold the first result, or -1.
  int64_t dying_operand(const Node& node, const Call& call, int64_t index) const {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const int64_t buffer = buffer_of(*node.operands[i]);
      if (!plan_.buffers[buffer].persistent && may_share_memory(call, i) &&
          last_use_.at(program_.roots.at(node.operands[i])) == index) {
        return buffer;
      }
    }
    return -1;
  }

  Plan& plan_;
  Program& program_;
  const LowerOptions& options_;
  std::unordered_map<const Value*, int64_t> last_use_;  // by root: the last step that touches it
};

}  // namespace

Plan lower(std::span<const ProgramSource> sources, const LowerOptions& options) {
  CHECK(!sources.empty(), "nothing to lower");
  Plan plan;
  plan.name = sources.front().graph->name();
  plan.backend = std::string(options.backend);
  plan.mesh = sources.front().graph->mesh();
  plan.streams = {"compute"};

  std::vector<Program> programs;
  for (const ProgramSource& source : sources) {
    CHECK(source.graph->mesh() == plan.mesh, "programs on different meshes");
    Nodes nodes = kept_nodes(source);
    Roots roots = find_roots(nodes);
    programs.push_back({source.kind, source.graph, std::move(nodes), std::move(roots), {}});
  }
  Bindings bindings(plan);
  for (const OpDef* op : {&kParam, &kState, &kInput}) {
    for (Program& program : programs) bindings.add_sources(program, *op);
  }
  for (Program& program : programs) bindings.add_outputs(program);
  for (Program& program : programs) {
    CHECK(plan.program(program.kind).empty(), "two ", program_name(program.kind), " programs");
    Emitter(plan, program, options).run();
  }
  assign_offsets(plan);
  check_plan(plan);
  return plan;
}

}  // namespace weft

// Lowers in three parts: selects the nodes of each program, binds the buffers visible from outside
// (the same in all programs), and walks each program to give every other value a transient buffer.
// A result that overwrites an operand, or an elementwise result whose operand is no longer needed,
// takes the operand's buffer. The values of a collective share a buffer (locations.h). A split
// collective runs on its own stream, and its wait becomes events.
#include "plan/lower.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/clocks.h"
#include "graph/comm_cost.h"
#include "graph/flat.h"
#include "graph/micro_nodes.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"
#include "plan/check.h"
#include "plan/locations.h"
#include "plan/memory.h"

namespace weft {
namespace {

using Nodes = std::vector<Node*>;

TensorType local_type(const Value& value, const Mesh& mesh) {
  return {value.type.dtype, local_shape(value.type, mesh), {}};
}

// The nodes of a program in order.
Nodes kept_nodes(const ProgramSource& source) {
  const Nodes all = source.graph->nodes();
  const bool is_micro =
      source.kind == ProgramKind::Micro || source.kind == ProgramKind::ReplayMicro;
  return is_micro ? micro_nodes(*source.graph, all) : all;
}

// A graph being lowered to a program.
struct Program {
  explicit Program(const ProgramSource& source)
      : kind(source.kind),
        graph(source.graph),
        nodes(kept_nodes(source)),
        locations(*source.graph) {
    for (const Node* node : nodes) {
      for (const auto& result : node->results) computed.insert(result.get());
    }
  }

  bool computes(const Value* value) const { return computed.contains(value); }

  ProgramKind kind;
  const Graph* graph = nullptr;
  Nodes nodes;
  std::unordered_set<const Value*> computed;
  Locations locations;
  std::unordered_map<const Value*, int64_t> buffers;  // by root
};

// Buffers bound from outside, one per name across all programs.
class Bindings {
 public:
  explicit Bindings(Plan& plan) : plan_(plan) {}

  // Binds the sources of one op. Called op by op, so that buffers of one kind are contiguous.
  void add_sources(Program& program, const OpDef& op) {
    for (const Node* node : program.nodes) {
      if (node->op != &op) continue;
      if (&op == &kBucket) {
        bind_bucket(program, *node);
      } else if (&op == &kParam) {
        bind_param(program, *node);
      } else if (&op == &kState) {
        bind_state(program, *node);
      } else {
        bind(plan_.inputs, source_name(*node), node->result(), BufferKind::Input, program);
      }
    }
  }

  // Called after the sources of all programs are bound: an output may be a source, or overwrite
  // one.
  void add_outputs(Program& program) {
    for (const Graph::Output& output : program.graph->outputs()) {
      if (!program.computes(output.value)) continue;
      bind(plan_.outputs, output.name(), output.value, BufferKind::Output, program);
    }
  }

 private:
  void bind_state(Program& program, const Node& node) {
    const StateKey& key = state_key(node);
    const auto kind = key.role == StateRole::LowCopy ? BufferKind::Copy : BufferKind::Optimizer;
    const size_t known = plan_.states.size();
    bind(plan_.states, to_string(key), node.result(), kind, program);
    if (plan_.states.size() > known) plan_.states.back().state = key;
  }

  // Binds a parameter of its own; it knows which part of it a rank has.
  void bind_param(Program& program, const Node& node) {
    const std::string& name = source_name(node);
    const TensorType& type = node.result()->type;
    const size_t known = plan_.params.size();
    bind(plan_.params, name, node.result(), BufferKind::Param, program);
    if (plan_.params.size() == known || type.placement.empty()) return;
    plan_.params.back().members.push_back({name, type.shape, type.placement});
  }

  // Binds the flat storage of a bucket with its member parameters.
  void bind_bucket(Program& program, const Node& node) {
    const std::vector<std::string> names = stored_params(node);
    const size_t known = plan_.params.size();
    bind(plan_.params, bucket_name(names), node.result(), BufferKind::Param, program);
    if (plan_.params.size() == known) return;
    Binding& binding = plan_.params.back();
    binding.axis = flat_axis(node.result()->type);
    const std::vector<TensorType> types = gathered_types(*node.result());
    CHECK(types.size() == names.size(), "a bucket of ", names.size(), " is gathered as ",
          types.size());
    for (size_t i = 0; i < names.size(); ++i) {
      CHECK(held_.insert(names[i]).second, names[i], " is in two buckets");
      binding.members.push_back({names[i], types[i].shape, types[i].placement});
    }
  }

  // Types of the members, from a gather of the storage, or of a value written together with it.
  static std::vector<TensorType> gathered_types(const Value& flat) {
    std::vector<TensorType> types;
    for (const Value* held : written_with(flat)) {
      for (const Node* user : held->users) {
        if (!is_gather(*user->op) || !is_flat_collective(*user)) continue;
        for (const auto& result : user->results) types.push_back(result->type);
        return types;
      }
    }
    return types;
  }

  // The value, the operands that its update overwrites, and the results of the update.
  static std::vector<const Value*> written_with(const Value& flat) {
    std::vector<const Value*> values = {&flat};
    for (const Node* user : flat.users) {
      const std::vector<int> overwritten = overwritten_operands(user->call());
      for (size_t i = 0; i < overwritten.size(); ++i) {
        if (overwritten[i] < 0) continue;
        values.push_back(user->operands.at(static_cast<size_t>(overwritten[i])));
        values.push_back(user->result(i));
      }
    }
    return values;
  }

  // Binds a name to the location of its value. Uses the buffer of that name in another program,
  // else the buffer of the location's root in this one, else a new buffer.
  void bind(std::vector<Binding>& list, const std::string& name, const Value* value,
            BufferKind kind, Program& program) {
    const TensorType type = local_type(*value, plan_.mesh);
    const Location location = program.locations.at(value);
    const auto bound = program.buffers.find(location.root);
    int64_t buffer = bound == program.buffers.end() ? -1 : bound->second;
    const auto known = by_name_.find(name);
    if (known != by_name_.end()) {
      const TensorRef& ref = known->second;
      // The program that trains a weight may place it in a bucket; the others follow.
      if (ref.offset != location.offset) program.locations.shift(location.root, ref.offset);
      CHECK(ref.dtype == type.dtype && ref.shape == type.shape, name, " is ", to_string(type),
            " in one program, ", to_string(TensorType{ref.dtype, ref.shape, {}}), " in another");
      CHECK(buffer == -1 || buffer == ref.buffer, name, " is in two buffers");
      program.buffers[location.root] = ref.buffer;
      return;
    }
    if (buffer == -1) {
      buffer = static_cast<int64_t>(plan_.buffers.size());
      plan_.buffers.push_back({.name = name,
                               .kind = kind,
                               .bytes = program.locations.bytes(location.root, type.bytes()),
                               .persistent = true});
    }
    program.buffers[location.root] = buffer;
    const TensorRef ref{buffer, type.dtype, type.shape, location.offset};
    by_name_.emplace(name, ref);
    list.push_back({name, ref});
  }

  Plan& plan_;
  std::unordered_set<std::string> held_;  // parameters that are in a bucket
  std::map<std::string, TensorRef, std::less<>> by_name_;
};

// Whether the node moves shards of one tensor along a dim: activations and their gradients.
bool is_dim_collective(const Node& node) {
  return node.op->collective != nullptr && !is_flat_collective(node);
}

// Whether the value is a gradient that an update or an accumulator reads.
bool is_gradient(const Value& value) {
  if (value.def->phase != Phase::Backward) return false;
  return std::any_of(value.users.begin(), value.users.end(), [&](const Node* user) {
    if (is_dim_collective(user->op == &kWait ? *value.def : *user)) return false;
    return user->phase == Phase::Optimizer || !user->op->overwrites.empty() ||
           user->op->traits.collective;
  });
}

// Emits the steps of one program.
class Emitter {
 public:
  Emitter(Plan& plan, Program& program, const LowerOptions& options)
      : plan_(plan), program_(program), options_(options), pending_(plan.streams.size()) {
    if (options.values != nullptr && program.kind == ProgramKind::Last) {
      packed_.emplace(*program.graph, options.packed_params);
    }
    int64_t index = 0;
    for (const Node* node : program.nodes) {
      if (node->op->traits.source) continue;
      if (node->op == &kWait) {
        // Up to this point the other stream may use the buffers of the collective.
        for (const Value* future : node->operands) {
          use(*future->def, index - 1);
          end_of_[future->def] = index - 1;
        }
        continue;
      }
      use(*node, index++);
    }
  }

  void run() {
    for (const Node* node : program_.nodes) {
      if (node->op->traits.source) continue;
      if (node->op == &kWait) {
        wait(*node);
      } else {
        emit(*node);
      }
    }
  }

 private:
  std::vector<Step>& steps() { return plan_.programs[static_cast<size_t>(program_.kind)]; }

  void use(const Node& node, int64_t index) {
    const auto extend = [&](const Value* value) {
      auto [last, added] = last_use_.try_emplace(program_.locations.at(value).root, index);
      if (!added) last->second = std::max(last->second, index);
    };
    for (const Value* operand : node.operands) extend(operand);
    for (const auto& result : node.results) extend(result.get());
  }

  void emit(const Node& node) {
    const int64_t index = static_cast<int64_t>(steps().size());
    Call call{&collective_of(*node.op), {}, {}, node.attrs};
    Step step;
    step.op = std::string(call.op->name());
    for (const Value* operand : node.operands) {
      call.operands.push_back(local_type(*operand, plan_.mesh));
      step.operands.push_back(ref(*operand, call.operands.back()));
    }
    for (const auto& result : node.results) {
      call.results.push_back(local_type(*result, plan_.mesh));
    }
    if (node.op->localize != nullptr) node.op->localize(node.call(), call);
    step.attrs = call.attrs;
    const Kernel& kernel =
        choose_kernel(options_.kernels, call, options_.backend, node.result()->name);
    step.kernel = std::string(kernel.name);
    for (size_t i = 0; i < node.results.size(); ++i) {
      give_buffer(*node.result(i), call, index, kernel);
      step.results.push_back(ref(*node.result(i), call.results[i]));
    }
    const int64_t workspace_bytes = workspace_of(kernel, call);
    if (workspace_bytes > 0) {
      const auto end = end_of_.find(&node);
      step.workspace =
          add_buffer(node.result()->name + ".workspace", BufferKind::Workspace, workspace_bytes,
                     index, end == end_of_.end() ? index : end->second);
    }
    step.path = node.path;
    step.phase = node.phase;
    step.recomputed = node.recomputed;
    step.flops = cost_of(call).flops;
    step.seconds = local_seconds(node.call(), plan_.mesh, options_.device);
    order(step, node);
    steps().push_back(std::move(step));
    if (packed_) {
      std::vector<PlanValue>& values = options_.values->emplace_back();
      for (const auto& result : node.results) {
        values.push_back(
            {result->name, result->type, packed_->of(*result), !result->users.empty()});
      }
    }
  }

  int64_t workspace_of(const Kernel& kernel, const Call& call) const {
    if (kernel.group_workspace != nullptr) {
      return kernel.group_workspace(call, plan_.mesh.axis_size(call.text_attr("axis")));
    }
    return kernel.workspace != nullptr ? kernel.workspace(call) : 0;
  }

  // Assigns the step to its stream and orders it after the steps it depends on: a collective starts
  // once the compute stream has reached this point.
  void order(Step& step, const Node& node) {
    const StreamId stream = stream_of(node);
    step.stream = index_of(stream);
    std::vector<int64_t>& pending = pending_[static_cast<size_t>(step.stream)];
    step.waits.swap(pending);
    if (stream == StreamId::Compute) {
      last_compute_ = static_cast<int64_t>(steps().size());
      return;
    }
    if (last_compute_ >= 0) {
      Step& before = steps()[static_cast<size_t>(last_compute_)];
      if (before.signal == -1) before.signal = plan_.num_events++;
      step.waits.push_back(before.signal);
    }
    step.signal = plan_.num_events++;
    for (const auto& result : node.results) event_of_[result.get()] = {step.signal, step.stream};
  }

  // Every other stream waits for the collective before its next step.
  void wait(const Node& node) {
    for (const Value* future : node.operands) {
      const Signal& done = event_of_.at(future);
      for (size_t stream = 0; stream < pending_.size(); ++stream) {
        std::vector<int64_t>& pending = pending_[stream];
        if (static_cast<int64_t>(stream) == done.stream) continue;
        if (std::find(pending.begin(), pending.end(), done.event) == pending.end()) {
          pending.push_back(done.event);
        }
      }
    }
  }

  TensorRef ref(const Value& value, const TensorType& type) const {
    const Location& location = program_.locations.at(&value);
    return {program_.buffers.at(location.root), type.dtype, type.shape, location.offset};
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

  // Ensures that the value's root has a buffer and that it lives long enough.
  void give_buffer(const Value& value, const Call& call, int64_t index, const Kernel& kernel) {
    const Value* root = program_.locations.at(&value).root;
    const int64_t last = last_use_.at(root);
    const auto known = program_.buffers.find(root);
    int64_t buffer = known == program_.buffers.end() ? -1 : known->second;
    if (buffer == -1 && value.index == 0 && !program_.locations.is_group(root)) {
      buffer = dying_operand(*value.def, call, index);
    }
    if (buffer == -1) {
      const int64_t bytes = program_.locations.bytes(root, call.results[value.index].bytes());
      buffer = add_buffer(value.name, BufferKind::Activation, bytes, index, last);
      if (kernel.shared_results && is_flat_collective(*value.def)) {
        plan_.buffers[buffer].shared = shared_space(*value.def);
      }
    }
    program_.buffers[root] = buffer;
    Buffer& held = plan_.buffers[buffer];
    if (!held.persistent) held.last = std::max(held.last, last);
    const bool accumulator =
        root->def->op == &kState && root != &value && value.def->phase == Phase::Backward;
    if (accumulator || (!held.persistent && is_gradient(value))) held.kind = BufferKind::Gradient;
    const bool gathered = is_gather(*value.def->op) && is_flat_collective(*value.def);
    if (!held.persistent && gathered) held.kind = BufferKind::Gathered;
  }

  // The shared space of the ranks along the gather's axis, or -1 if there is none.
  int64_t shared_space(const Node& gather) {
    const auto& axis = std::get<std::string>(gather.attr("axis"));
    const bool shared = options_.shared_gather && options_.device.ranks_share_memory &&
                        plan_.mesh.axis_size(axis) > 1 &&
                        on_one_host(plan_.mesh, axis, options_.device);
    if (!shared) return -1;
    const auto known = std::find_if(plan_.shared.begin(), plan_.shared.end(),
                                    [&](const SharedSpace& space) { return space.axis == axis; });
    const int64_t index = known - plan_.shared.begin();
    if (known == plan_.shared.end()) plan_.shared.push_back({axis, 0});
    return index;
  }

  // The transient buffer of an operand that dies here and may hold the first result, or -1.
  int64_t dying_operand(const Node& node, const Call& call, int64_t index) const {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Value* root = program_.locations.at(node.operands[i]).root;
      const int64_t buffer = program_.buffers.at(root);
      if (!plan_.buffers[buffer].persistent && !program_.locations.is_group(root) &&
          may_share_memory(call, i) && last_use_.at(root) == index) {
        return buffer;
      }
    }
    return -1;
  }

  struct Signal {
    int64_t event = -1;
    int64_t stream = 0;
  };

  Plan& plan_;
  Program& program_;
  const LowerOptions& options_;
  std::optional<PackedDims> packed_;                    // if values are wanted
  std::vector<std::vector<int64_t>> pending_;           // by stream: events before its next step
  std::unordered_map<const Value*, Signal> event_of_;   // by future
  std::unordered_map<const Value*, int64_t> last_use_;  // by root: the last step that touches it
  std::unordered_map<const Node*, int64_t> end_of_;     // by start: the last overlapping step
  int64_t last_compute_ = -1;
};

// All streams up to the last one in use: compute alone, or also those of parameters, or all.
std::vector<std::string> streams_of(std::span<const ProgramSource> sources) {
  StreamId last = StreamId::Compute;
  for (const ProgramSource& source : sources) {
    for (const auto& node : source.graph->order()) {
      if (!node->op->traits.source) last = std::max(last, stream_of(*node));
    }
  }
  if (last == StreamId::Gather) last = StreamId::Reduce;
  return {kStreamNames.begin(), kStreamNames.begin() + index_of(last) + 1};
}

}  // namespace

Plan lower(std::span<const ProgramSource> sources, const LowerOptions& options) {
  CHECK(!sources.empty(), "nothing to lower");
  Plan plan;
  plan.name = sources.front().graph->name();
  plan.backend = std::string(options.backend);
  plan.mesh = sources.front().graph->mesh();
  plan.streams = streams_of(sources);

  std::vector<Program> programs;
  for (const ProgramSource& source : sources) {
    CHECK(source.graph->mesh() == plan.mesh, "programs on different meshes");
    programs.emplace_back(source);
  }
  std::vector<Kernel> kernels(options.kernels.begin(), options.kernels.end());
  if (options.ordered_sums) {
    std::erase_if(kernels, [](const Kernel& kernel) { return kernel.any_order; });
  }
  LowerOptions chosen = options;
  chosen.kernels = kernels;
  Bindings bindings(plan);
  for (const OpDef* op : {&kParam, &kBucket, &kState, &kInput}) {
    for (Program& program : programs) bindings.add_sources(program, *op);
  }
  for (Program& program : programs) bindings.add_outputs(program);
  for (Program& program : programs) {
    CHECK(plan.program(program.kind).empty(), "two ", program_name(program.kind), " programs");
    Emitter(plan, program, chosen).run();
  }
  assign_offsets(plan);
  check_plan(plan);
  return plan;
}

}  // namespace weft

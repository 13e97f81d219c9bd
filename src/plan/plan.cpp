// Names of the plan's enumerators, and helpers for single steps.
#include "plan/plan.h"

#include <algorithm>

#include "graph/flat.h"

namespace weft {

std::string_view buffer_kind_name(BufferKind kind) {
  switch (kind) {
    case BufferKind::Param:
      return "param";
    case BufferKind::Copy:
      return "copy";
    case BufferKind::Gradient:
      return "gradient";
    case BufferKind::Optimizer:
      return "optimizer";
    case BufferKind::Activation:
      return "activation";
    case BufferKind::Gathered:
      return "gathered";
    case BufferKind::Input:
      return "input";
    case BufferKind::Output:
      return "output";
    case BufferKind::Workspace:
      return "workspace";
  }
  return "?";
}

std::string_view program_name(ProgramKind kind) {
  switch (kind) {
    case ProgramKind::Micro:
      return "micro";
    case ProgramKind::Last:
      return "last";
    case ProgramKind::Eval:
      return "eval";
    case ProgramKind::ReplayMicro:
      return "replay_micro";
    case ProgramKind::ReplayLast:
      return "replay_last";
  }
  return "?";
}

std::vector<int64_t> member_offsets(const Binding& binding, const Mesh& mesh) {
  std::vector<Shape> shapes;
  for (const FlatMember& member : binding.members) {
    shapes.push_back(local_shape({DType::F32, member.shape, member.placement}, mesh));
  }
  return flat_offsets(shapes);
}

const Binding* find_state(const Plan& plan, const StateKey& key) {
  const auto found = std::find_if(plan.states.begin(), plan.states.end(),
                                  [&](const Binding& binding) { return binding.state == key; });
  return found == plan.states.end() ? nullptr : &*found;
}

bool is_call(const Step& step, const OpDef& op) {
  return step.op == op.name();
}

const TensorRef& operand_of(const Step& step, std::string_view name) {
  return step.operands.at(find_op(step.op)->parsed().operand_index(name));
}

const TensorRef& result_of(const Step& step, std::string_view name) {
  return step.results.at(find_op(step.op)->parsed().result_index(name));
}

Call call_of(const Step& step) {
  Call call;
  call.op = find_op(step.op);
  CHECK(call.op != nullptr, "no op ", step.op);
  for (const TensorRef& ref : step.operands) call.operands.push_back({ref.dtype, ref.shape, {}});
  for (const TensorRef& ref : step.results) call.results.push_back({ref.dtype, ref.shape, {}});
  call.attrs = step.attrs;
  return call;
}

std::vector<CollectiveGroup> collective_groups(const Plan& plan) {
  std::vector<CollectiveGroup> groups;
  for (const std::vector<Step>& program : plan.programs) {
    for (const Step& step : program) {
      const Call call = call_of(step);
      if (!call.op->traits.collective) continue;
      const CollectiveGroup group{call.text_attr("axis"), step.stream};
      if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
    }
  }
  return groups;
}

int64_t rank_bytes(const Plan& plan) {
  int64_t bytes = plan.arena_bytes;
  for (const SharedSpace& space : plan.shared) {
    const int64_t ranks = plan.mesh.axis_size(space.axis);
    bytes += (space.bytes + ranks - 1) / ranks;
  }
  return bytes;
}

int64_t tensor_bytes(const TensorRef& ref) {
  return count(ref.shape) * dtype_bytes(ref.dtype);
}

std::string step_label(ProgramKind program, int64_t index, const Step& step) {
  return cat("plan step ", index, " ", step.op, " (", program_name(program), ": ", step.path,
             step.path.empty() ? "" : " ", phase_name(step.phase), ")");
}

}  // namespace weft

// Checks bounds, then overlap of lifetimes, then walks each program with the last writer of every
// byte and whether that write is known to have ended. This covers shared memory too, although other
// ranks write there: only a gather over its axis may write, and no rank writes before all ranks
// have reached the gather and so have finished their earlier reads.
#include "plan/check.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/comm_cost.h"
#include "graph/flat.h"
#include "graph/ops/ops.h"
#include "plan/access_history.h"
#include "plan/comm_volume.h"
#include "plan/memory.h"

namespace weft {
namespace {

template <class... Parts>
[[noreturn]] void fault(const Plan& plan, const Parts&... parts) {
  throw InternalError(cat("plan ", plan.name, ": ", parts...));
}

std::string describe(const Plan& plan, int64_t index) {
  const Buffer& buffer = plan.buffers[index];
  return cat("b", index, " \"", buffer.name, "\" [", buffer.offset, ", ",
             buffer.offset + buffer.bytes, ")");
}

// The arena and the shared spaces as one contiguous range of bytes.
int64_t space_begin(const Plan& plan, int64_t shared) {
  int64_t begin = shared < 0 ? 0 : plan.arena_bytes;
  for (int64_t i = 0; i < shared; ++i) begin += plan.shared[i].bytes;
  return begin;
}

int64_t first_byte(const Plan& plan, const Buffer& buffer) {
  return space_begin(plan, buffer.shared) + buffer.offset;
}

void check_space(const Plan& plan, int64_t index) {
  const Buffer& b = plan.buffers[index];
  if (b.shared < -1 || b.shared >= static_cast<int64_t>(plan.shared.size())) {
    fault(plan, "buffer ", describe(plan, index), " in shared space ", b.shared, " of ",
          plan.shared.size());
  }
  const int64_t space = b.shared < 0 ? plan.arena_bytes : plan.shared[b.shared].bytes;
  if (b.bytes < 0 || b.offset < 0 || b.offset > space || b.bytes > space - b.offset) {
    fault(plan, "buffer ", describe(plan, index), " outside the ",
          b.shared < 0 ? "arena" : "shared space", " of ", space);
  }
  if (b.shared >= 0 && b.persistent) {
    fault(plan, "buffer ", describe(plan, index), " is persistent in a shared space");
  }
}

void check_buffer(const Plan& plan, int64_t index) {
  const Buffer& b = plan.buffers[index];
  check_space(plan, index);
  if (b.offset % kAlignment != 0) {
    fault(plan, "buffer ", describe(plan, index), " not aligned to ", kAlignment);
  }
  if (b.persistent) {
    if (b.offset + b.bytes > plan.persistent_bytes) {
      fault(plan, "persistent buffer ", describe(plan, index), " beyond the persistent ",
            plan.persistent_bytes, " bytes");
    }
    return;
  }
  if (b.shared < 0 && b.offset < plan.persistent_bytes) {
    fault(plan, "buffer ", describe(plan, index), " within the persistent ", plan.persistent_bytes,
          " bytes");
  }
  const int64_t steps = static_cast<int64_t>(plan.program(b.program).size());
  if (b.first < 0 || b.last < b.first || b.last >= steps) {
    fault(plan, "buffer ", describe(plan, index), " lives from plan step ", b.first, " to ", b.last,
          " of ", steps, " in ", program_name(b.program));
  }
}

// The buffers live at one time, by first byte; reports a new one that overlaps another.
class LiveSet {
 public:
  explicit LiveSet(const Plan& plan) : plan_(plan) {}

  void insert(int64_t index) {
    const Buffer& buffer = plan_.buffers[index];
    if (buffer.bytes == 0) return;
    const int64_t begin = first_byte(plan_, buffer);
    const auto next = by_begin_.lower_bound(begin);
    if (next != by_begin_.end() && next->first < begin + buffer.bytes) {
      overlap(index, next->second);
    }
    if (next != by_begin_.begin()) {
      const auto [other_begin, other] = *std::prev(next);
      if (other_begin + plan_.buffers[other].bytes > begin) overlap(other, index);
    }
    by_begin_.emplace(begin, index);
  }

  void erase(int64_t index) {
    const Buffer& buffer = plan_.buffers[index];
    if (buffer.bytes > 0) by_begin_.erase(first_byte(plan_, buffer));
  }

 private:
  [[noreturn]] void overlap(int64_t a, int64_t b) {
    const Buffer& one = plan_.buffers[a];
    const Buffer& two = plan_.buffers[b];
    std::string where = "at all times";
    if (!one.persistent) {
      where =
          cat("at plan step ", std::max(one.first, two.first), " of ", program_name(one.program));
    }
    fault(plan_, "buffers ", describe(plan_, a), " and ", describe(plan_, b), " overlap ", where);
  }

  const Plan& plan_;
  std::map<int64_t, int64_t> by_begin_;
};

void check_persistent_overlap(const Plan& plan) {
  LiveSet live(plan);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    if (plan.buffers[i].persistent) live.insert(static_cast<int64_t>(i));
  }
}

void check_transient_overlap(const Plan& plan, ProgramKind program) {
  const size_t steps = plan.program(program).size();
  std::vector<std::vector<int64_t>> born(steps);
  std::vector<std::vector<int64_t>> dies(steps);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& buffer = plan.buffers[i];
    if (buffer.persistent || buffer.program != program) continue;
    born[buffer.first].push_back(static_cast<int64_t>(i));
    dies[buffer.last].push_back(static_cast<int64_t>(i));
  }
  LiveSet live(plan);
  for (size_t step = 0; step < steps; ++step) {
    for (const int64_t index : born[step]) live.insert(index);
    for (const int64_t index : dies[step]) live.erase(index);
  }
}

// Walks one program.
class ProgramWalk {
 public:
  ProgramWalk(const Plan& plan, ProgramKind program, std::set<int64_t>& written)
      : plan_(plan),
        program_(program),
        written_(written),
        history_(space_begin(plan, static_cast<int64_t>(plan.shared.size())),
                 static_cast<int64_t>(plan.streams.size()), plan.num_events) {
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
      if (plan.buffers[i].persistent) history_.preset(range(static_cast<int64_t>(i)));
    }
  }

  void run() {
    const std::vector<Step>& steps = plan_.program(program_);
    for (index_ = 0; index_ < static_cast<int64_t>(steps.size()); ++index_) {
      step_ = &steps[index_];
      check_step();
    }
  }

 private:
  void check_step() {
    if (step_->stream < 0 || step_->stream >= static_cast<int64_t>(plan_.streams.size())) {
      step_fault("runs on stream ", step_->stream, " of ", plan_.streams.size());
    }
    history_.begin_step(index_, step_->stream);
    for (const int64_t event : step_->waits) {
      check_event(event);
      if (!history_.wait(event)) step_fault("waits for e", event, ", which nothing signals before");
    }
    for (const TensorRef& ref : step_->operands) {
      check_ref(ref.buffer, ref);
      if (const auto conflict = history_.read(range(ref))) bad_read(ref.buffer, *conflict);
    }
    std::set<int64_t> targets;  // by first byte
    for (const TensorRef& ref : step_->results) {
      check_ref(ref.buffer, ref);
      check_write(range(ref), targets);
    }
    check_flat();
    if (step_->workspace != -1) {
      check_ref(step_->workspace, {});
      check_write(range(step_->workspace), targets);
    }
    if (step_->signal != -1) {
      check_event(step_->signal);
      history_.signal(step_->signal);
    }
  }

  void check_event(int64_t event) const {
    if (event < 0 || event >= plan_.num_events) {
      step_fault("names event e", event, " of ", plan_.num_events);
    }
  }

  void check_ref(int64_t index, const TensorRef& ref) const {
    if (index < 0 || index >= static_cast<int64_t>(plan_.buffers.size())) {
      step_fault("names buffer b", index, " of ", plan_.buffers.size());
    }
    const Buffer& buffer = plan_.buffers[index];
    if (ref.offset < 0 || (ref.buffer != -1 && ref.offset + tensor_bytes(ref) > buffer.bytes)) {
      step_fault("sees ", tensor_bytes(ref), " bytes at ", ref.offset, " of ",
                 describe(plan_, index));
    }
    if (buffer.persistent) return;
    if (buffer.program != program_) {
      step_fault("uses ", describe(plan_, index), " of program ", program_name(buffer.program));
    }
    if (index_ < buffer.first || index_ > buffer.last) {
      step_fault("uses ", describe(plan_, index), ", which lives from plan step ", buffer.first,
                 " to ", buffer.last);
    }
  }

  void check_write(const AccessHistory::Range& target, std::set<int64_t>& targets) {
    const int64_t index = target.buffer;
    check_writer(plan_.buffers[index], index);
    if (!targets.insert(target.begin).second) {
      step_fault("writes ", describe(plan_, index), " twice");
    }
    if (const auto conflict = history_.write(target)) {
      step_fault("writes ", describe(plan_, index), " with no event after ", label(conflict->step),
                 ", which uses those bytes");
    }
    written_.insert(index);
  }

  // A library works on a bucket as one contiguous range: its members must follow each other, and if
  // it is sharded, it must have room for a full slot per rank.
  void check_flat() const {
    if (!is_collective(*step_) || !is_flat_collective(call_of(*step_))) return;
    const CollectiveInfo& collective = *find_op(step_->op)->collective;
    const bool gathers = collective.full == CollectiveSide::Results;
    const std::vector<TensorRef>& members = gathers ? step_->results : step_->operands;
    std::vector<Shape> shapes;
    for (const TensorRef& member : members) shapes.push_back(member.shape);
    const std::vector<int64_t> offsets = flat_offsets(shapes);
    const TensorRef& first = members.at(0);
    const int64_t element = dtype_bytes(first.dtype);
    for (size_t i = 1; i < members.size(); ++i) {
      if (members[i].buffer == first.buffer &&
          members[i].offset == first.offset + offsets[i] * element) {
        continue;
      }
      step_fault("has its member ", i, " at ", members[i].offset, " of ",
                 describe(plan_, members[i].buffer), ", expected ",
                 first.offset + offsets[i] * element, " of ", describe(plan_, first.buffer));
    }
    if (!collective.sharded) return;
    const TensorRef& shard = gathers ? operand_of(*step_, "x") : result_of(*step_, "y");
    const int64_t ranks = plan_.mesh.axis_size(axis_of(*step_));
    const int64_t end = first.offset + ranks * count(shard.shape) * element;
    if (end > plan_.buffers[first.buffer].bytes) {
      step_fault("needs ", end, " bytes for the slots of ", ranks, " ranks in ",
                 describe(plan_, first.buffer));
    }
  }

  // Only flat gathers over its axis may write shared memory.
  void check_writer(const Buffer& buffer, int64_t index) const {
    if (buffer.shared < 0) return;
    const std::string& axis = plan_.shared[buffer.shared].axis;
    const Call call = call_of(*step_);
    if (is_gather(*call.op) && is_flat_collective(call) && axis_of(*step_) == axis) return;
    step_fault("writes ", describe(plan_, index), ", which only a gather over ", axis,
               " may write");
  }

  [[noreturn]] void bad_read(int64_t index, const AccessHistory::Conflict& conflict) const {
    if (conflict.unordered) {
      step_fault("reads ", describe(plan_, index), " with no event after ", label(conflict.step),
                 ", which writes it");
    }
    if (conflict.buffer >= 0) {
      step_fault("reads ", describe(plan_, index), ", which ", label(conflict.step),
                 " overwrote as ", describe(plan_, conflict.buffer));
    }
    step_fault("reads ", describe(plan_, index), " before anything is written to it");
  }

  template <class... Parts>
  [[noreturn]] void step_fault(const Parts&... parts) const {
    fault(plan_, label(index_), ": ", parts...);
  }

  std::string label(int64_t step) const {
    return step < 0 ? "the start" : step_label(program_, step, plan_.program(program_)[step]);
  }

  AccessHistory::Range range(int64_t index) const {
    const int64_t begin = first_byte(plan_, plan_.buffers[index]);
    return {index, begin, begin + plan_.buffers[index].bytes};
  }

  AccessHistory::Range range(const TensorRef& ref) const {
    const int64_t begin = first_byte(plan_, plan_.buffers[ref.buffer]) + ref.offset;
    return {ref.buffer, begin, begin + tensor_bytes(ref)};
  }

  const Plan& plan_;
  ProgramKind program_;
  std::set<int64_t>& written_;
  AccessHistory history_;
  int64_t index_ = 0;
  const Step* step_ = nullptr;
};

void check_bindings(const Plan& plan, std::set<int64_t> filled) {
  std::set<std::string_view> names;
  const auto check = [&](const Binding& binding) {
    if (!names.insert(binding.name).second) fault(plan, "two bindings \"", binding.name, "\"");
    const int64_t index = binding.tensor.buffer;
    if (index < 0 || index >= static_cast<int64_t>(plan.buffers.size()) ||
        !plan.buffers[index].persistent ||
        binding.tensor.offset + tensor_bytes(binding.tensor) > plan.buffers[index].bytes) {
      fault(plan, "binding \"", binding.name, "\" does not fit a persistent buffer b", index);
    }
  };
  for (const Binding& binding : plan.states) {
    if (!binding.state || to_string(*binding.state) != binding.name) {
      fault(plan, "state \"", binding.name, "\" has no owner and role of that name");
    }
  }
  for (const auto* list : {&plan.inputs, &plan.params, &plan.states}) {
    for (const Binding& binding : *list) {
      check(binding);
      filled.insert(binding.tensor.buffer);
    }
  }
  for (const Binding& binding : plan.outputs) {
    check(binding);
    if (!filled.count(binding.tensor.buffer)) {
      fault(plan, "no step writes output \"", binding.name, "\"");
    }
  }
}

}  // namespace

void check_plan(const Plan& plan) {
  if (plan.persistent_bytes < 0 || plan.persistent_bytes > plan.arena_bytes ||
      plan.num_events < 0) {
    fault(plan, "arena ", plan.arena_bytes, ", persistent ", plan.persistent_bytes, ", events ",
          plan.num_events);
  }
  for (const SharedSpace& space : plan.shared) {
    if (space.bytes < 0) fault(plan, "shared space of ", space.bytes, " bytes over ", space.axis);
    plan.mesh.axis_size(space.axis);
  }
  for (size_t i = 0; i < plan.buffers.size(); ++i) check_buffer(plan, static_cast<int64_t>(i));
  check_persistent_overlap(plan);
  std::set<int64_t> written;
  for (int i = 0; i < kPrograms; ++i) {
    const auto program = static_cast<ProgramKind>(i);
    check_transient_overlap(plan, program);
    ProgramWalk(plan, program, written).run();
  }
  check_bindings(plan, std::move(written));
}

}  // namespace weft

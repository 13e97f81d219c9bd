// Computes the summary. Nothing in it depends on the compiling machine.
#include "plan/summary.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "graph/comm_cost.h"
#include "graph/module_path.h"
#include "graph/ops/ops.h"

namespace weft {
namespace {

// Whether the buffer is live at the step, in the rank's arena.
bool alive(const Buffer& buffer, ProgramKind program, int64_t step) {
  if (buffer.shared >= 0) return false;
  return buffer.persistent ||
         (buffer.program == program && buffer.first <= step && step <= buffer.last);
}

// The live buffers at a step, grouped.
std::vector<BufferGroup> buffer_groups(const Plan& plan, ProgramKind program, int64_t step) {
  std::map<std::string, BufferGroup> groups;
  for (const Buffer& buffer : plan.buffers) {
    if (!alive(buffer, program, step)) continue;
    const std::string name = without_block(buffer.name);
    BufferGroup& group = groups[cat(name, " (", buffer_kind_name(buffer.kind), ")")];
    group.name = name;
    group.kind = buffer.kind;
    group.bytes += buffer.bytes;
    ++group.count;
  }
  std::vector<BufferGroup> list;
  for (const auto& [key, group] : groups) list.push_back(group);
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return b.bytes < a.bytes; });
  return list;
}

std::vector<PhaseSteps> phase_counts(const std::vector<Step>& steps) {
  std::vector<PhaseSteps> counts;
  for (const Phase phase : {Phase::Forward, Phase::Backward, Phase::Optimizer}) {
    const auto found = std::count_if(steps.begin(), steps.end(),
                                     [&](const Step& step) { return step.phase == phase; });
    if (found > 0) counts.push_back({phase, found});
  }
  return counts;
}

// The time of the program by op, without collectives.
std::vector<OpTime> op_times(const std::vector<Step>& steps) {
  std::map<std::string, double> by_op;
  for (const Step& step : steps) {
    if (!is_collective(step)) by_op[step.op] += step.seconds;
  }
  std::vector<OpTime> list;
  for (const auto& [op, seconds] : by_op) list.push_back({op, seconds});
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return b.seconds < a.seconds; });
  return list;
}

std::optional<LowWeights> low_weights(const Plan& plan) {
  LowWeights low;
  for (const Binding& state : plan.states) {
    const Buffer& buffer = plan.buffers[static_cast<size_t>(state.tensor.buffer)];
    if (buffer.kind != BufferKind::Copy) continue;
    low.kept_bytes += tensor_bytes(state.tensor);
    low.dtype = state.tensor.dtype;
  }
  if (low.kept_bytes > 0) return low;
  std::set<int64_t> params;
  for (const Binding& param : plan.params) params.insert(param.tensor.buffer);
  for (const Step& step : plan.program(ProgramKind::Last)) {
    if (!is_call(step, kCast) && !is_gather(*find_op(step.op))) continue;
    const TensorRef& from = operand_of(step, "x");
    const DType to = result_of(step, "y").dtype;
    if (!params.contains(from.buffer) || dtype_bytes(to) >= dtype_bytes(from.dtype)) continue;
    return LowWeights{.dtype = to};
  }
  return std::nullopt;
}

// Buckets of the same size and position in the model count as one kind.
std::vector<NamedBytes> bucket_kinds(const std::vector<BucketSize>& buckets) {
  std::vector<NamedBytes> kinds;
  for (const BucketSize& bucket : buckets) {
    const std::string name = without_block(bucket.name);
    const auto same = std::find_if(kinds.begin(), kinds.end(), [&](const NamedBytes& kind) {
      return kind.name == name && kind.bytes == bucket.bytes;
    });
    if (same == kinds.end()) {
      kinds.push_back({name, bucket.bytes, 1});
    } else {
      ++same->count;
    }
  }
  return kinds;
}

ProgramSummary summarize_program(const Plan& plan, ProgramKind program) {
  const std::vector<Step>& steps = plan.program(program);
  const Peak peak = peak_memory(plan, program);
  return {.kind = program,
          .steps = std::ssize(steps),
          .phases = phase_counts(steps),
          .recomputed = std::count_if(steps.begin(), steps.end(),
                                      [](const Step& step) { return step.recomputed; }),
          .flops = program_flops(plan, program),
          .traffic_bytes = program_traffic(plan, program),
          .time = program_time(plan, program),
          .ops = op_times(steps),
          .collectives = collective_volumes(plan, program),
          .packing_bytes = packing_bytes(plan, program),
          .peak = peak,
          .peak_label = step_label(program, peak.step, steps[static_cast<size_t>(peak.step)])};
}

}  // namespace

Peak peak_memory(const Plan& plan, ProgramKind program) {
  const size_t steps = plan.program(program).size();
  Peak peak;
  if (steps == 0) return peak;
  using Bytes = std::array<int64_t, kBufferKinds>;
  Bytes live{};
  std::vector<Bytes> born(steps + 1, Bytes{});
  std::vector<Bytes> dead(steps + 1, Bytes{});
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.shared >= 0) continue;
    const auto kind = static_cast<size_t>(buffer.kind);
    if (buffer.persistent) {
      live[kind] += buffer.bytes;
    } else if (buffer.program == program) {
      born.at(buffer.first)[kind] += buffer.bytes;
      dead.at(buffer.last + 1)[kind] += buffer.bytes;
    }
  }
  for (size_t step = 0; step < steps; ++step) {
    int64_t total = 0;
    for (size_t kind = 0; kind < live.size(); ++kind) {
      live[kind] += born[step][kind] - dead[step][kind];
      total += live[kind];
    }
    if (total > peak.total || peak.step < 0) peak = {live, total, static_cast<int64_t>(step)};
  }
  return peak;
}

double program_flops(const Plan& plan, ProgramKind program) {
  double sum = 0;
  for (const Step& step : plan.program(program)) sum += step.flops;
  return sum;
}

double program_traffic(const Plan& plan, ProgramKind program) {
  double sum = 0;
  for (const Step& step : plan.program(program)) sum += cost_of(call_of(step)).bytes;
  return sum;
}

PlanSummary summarize(const Plan& plan) {
  const std::vector<BucketSize> buckets = buckets_of(plan);
  PlanSummary summary{.name = plan.name,
                      .backend = plan.backend,
                      .mesh = plan.mesh,
                      .params = std::ssize(plan.params),
                      .states = std::ssize(plan.states),
                      .inputs = std::ssize(plan.inputs),
                      .outputs = std::ssize(plan.outputs),
                      .streams = plan.streams,
                      .events = plan.num_events,
                      .arena_bytes = plan.arena_bytes,
                      .persistent_bytes = plan.persistent_bytes,
                      .shared = plan.shared,
                      .replanning = {},
                      .low_weights = low_weights(plan),
                      .buckets = bucket_kinds(buckets),
                      .bucket_count = std::ssize(buckets),
                      .programs = {},
                      .largest = {}};
  const ProgramSummary* highest = nullptr;
  summary.programs.reserve(kPrograms);
  for (int i = 0; i < kPrograms; ++i) {
    const auto program = static_cast<ProgramKind>(i);
    if (plan.program(program).empty()) continue;
    const ProgramSummary& added = summary.programs.emplace_back(summarize_program(plan, program));
    if (highest == nullptr || added.peak.total >= highest->peak.total) highest = &added;
  }
  if (highest != nullptr) summary.largest = buffer_groups(plan, highest->kind, highest->peak.step);
  return summary;
}

}  // namespace weft

// The summary: a few aligned lines a program, with nothing in them that depends on the machine that
// compiles.
#include "plan/summary.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "graph/ops/ops.h"
#include "plan/comm_volume.h"
#include "plan/timing.h"

namespace weft {
namespace {

constexpr size_t kLargest = 5;  // groups of buffers that are named
constexpr size_t kSlowest = 5;  // ops that are named
constexpr size_t kBucketKinds = 8;

std::string padded(std::string_view label) {
  std::string text(label);
  text.resize(std::max<size_t>(text.size() + 1, 14), ' ');
  return text;
}

std::string percent(double part, double whole) {
  return cat(static_cast<int64_t>(whole > 0 ? part / whole * 100 + 0.5 : 0), "%");
}

// "l3.attn.out" and "layers.3.mlp" without the number, so that the layers of a model are one group.
std::string group_name(std::string_view name) {
  std::string out;
  for (const std::string& piece : split(name, '.')) {
    if (!out.empty()) out += '.';
    const size_t digits = piece.find_first_of("0123456789");
    const bool numbered = (digits == 0 || (digits == 1 && piece[0] == 'l')) &&
                          piece.find_first_not_of("0123456789", digits) == std::string::npos;
    out += numbered ? piece.substr(0, digits) + "*" : piece;
  }
  return out;
}

// In the arena of the rank.
bool alive(const Buffer& buffer, ProgramKind program, int64_t step) {
  if (buffer.common >= 0) return false;
  return buffer.persistent ||
         (buffer.program == program && buffer.first <= step && step <= buffer.last);
}

template <class Count>
std::vector<std::pair<std::string, Count>> largest_first(const std::map<std::string, Count>& map) {
  std::vector<std::pair<std::string, Count>> list(map.begin(), map.end());
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return b.second < a.second; });
  return list;
}

struct Group {
  int64_t bytes = 0;
  int64_t count = 0;
  bool operator<(const Group& other) const { return bytes < other.bytes; }
};

// What fills the memory at the highest peak.
std::string largest_lines(const Plan& plan, ProgramKind program, int64_t step) {
  std::map<std::string, Group> groups;
  for (const Buffer& buffer : plan.buffers) {
    if (!alive(buffer, program, step)) continue;
    Group& group = groups[cat(group_name(buffer.name), " (", buffer_kind_name(buffer.kind), ")")];
    group.bytes += buffer.bytes;
    ++group.count;
  }
  std::string text;
  const auto list = largest_first(groups);
  for (size_t i = 0; i < std::min(kLargest, list.size()); ++i) {
    const auto& [name, group] = list[i];
    text += cat(padded(i == 0 ? "largest" : ""), human_bytes(static_cast<double>(group.bytes)),
                "  ", name);
    if (group.count > 1) text += cat(" x ", group.count);
    text += "\n";
  }
  return text;
}

std::string phase_counts(const std::vector<Step>& steps) {
  std::string text;
  for (const Phase phase : {Phase::Forward, Phase::Backward, Phase::Optimizer}) {
    const auto in_phase = [&](const Step& step) { return step.phase == phase; };
    const auto found = std::count_if(steps.begin(), steps.end(), in_phase);
    if (found > 0) text += cat("  ", phase_name(phase), " ", found);
  }
  const auto recomputed =
      std::count_if(steps.begin(), steps.end(), [](const Step& s) { return s.recomputed; });
  if (recomputed > 0) text += cat("  recomputed ", recomputed);
  return text;
}

std::string size_range(int64_t smallest, int64_t largest) {
  const std::string low = human_bytes(static_cast<double>(smallest));
  return smallest == largest ? low : cat(low, " to ", human_bytes(static_cast<double>(largest)));
}

// Where the time of the program goes; what collectives take beside computation is not part of it.
std::string time_line(const Plan& plan, ProgramKind program) {
  std::map<std::string, double> by_op;
  for (const Step& step : plan.program(program)) {
    if (!is_collective(step)) by_op[step.op] += step.seconds;
  }
  const PlanTime time = program_time(plan, program);
  std::string text = padded("  time") + short_time(time.seconds) + " predicted";
  if (time.collective_seconds > 0) {
    text += cat("  exposed comm ", percent(time.exposed_seconds(), time.seconds));
  }
  const auto list = largest_first(by_op);
  for (size_t i = 0; i < std::min(kSlowest, list.size()); ++i) {
    text += cat("  ", list[i].first, " ", percent(list[i].second, time.seconds));
  }
  return text + "\n";
}

// What the weights are read as where that is not what the update works on: kept from step to step,
// or cast for every use.
std::string weights_line(const Plan& plan) {
  int64_t kept = 0;
  std::string_view dtype;
  for (const Binding& state : plan.states) {
    const Buffer& buffer = plan.buffers[static_cast<size_t>(state.tensor.buffer)];
    if (buffer.kind != BufferKind::Copy) continue;
    kept += tensor_bytes(state.tensor);
    dtype = dtype_name(state.tensor.dtype);
  }
  if (kept > 0) {
    return cat(padded("weights"), "kept in ", dtype, " too, ",
               human_bytes(static_cast<double>(kept)), ", written by the update\n");
  }
  std::set<int64_t> params;
  for (const Binding& param : plan.params) params.insert(param.tensor.buffer);
  for (const Step& step : plan.program(ProgramKind::Last)) {
    if (!is_call(step, kCast) && !is_call(step, kAllGather)) continue;
    const TensorRef& from = step.operands.at(0);
    const DType to = step.results.at(0).dtype;
    if (!params.contains(from.buffer) || dtype_bytes(to) >= dtype_bytes(from.dtype)) continue;
    return cat(padded("weights"), "cast to ", dtype_name(to), " for every use\n");
  }
  return "";
}

// Buckets of one size and place in the model share a line.
std::string bucket_lines(const Plan& plan) {
  const std::vector<BucketSize> buckets = buckets_of(plan);
  std::vector<std::pair<BucketSize, int64_t>> kinds;
  for (const BucketSize& bucket : buckets) {
    const BucketSize kind{group_name(bucket.name), bucket.bytes};
    const auto same = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const auto& entry) { return entry.first == kind; });
    if (same == kinds.end()) {
      kinds.emplace_back(kind, 1);
    } else {
      ++same->second;
    }
  }
  std::string text;
  for (size_t i = 0; i < std::min(kBucketKinds, kinds.size()); ++i) {
    const auto& [kind, count] = kinds[i];
    text += cat(padded(i == 0 ? "buckets" : ""), human_bytes(static_cast<double>(kind.bytes)), "  ",
                kind.name, count > 1 ? cat(" x ", count) : std::string(), "\n");
  }
  if (kinds.size() > kBucketKinds) {
    text += cat(padded(""), "and ", kinds.size() - kBucketKinds, " other kinds; ", buckets.size(),
                " buckets in all\n");
  }
  return text;
}

// The exchanges of one rank; nothing for a program without any.
std::string collective_lines(const Plan& plan, ProgramKind program) {
  std::string text;
  for (const CollectiveVolume& volume : collective_volumes(plan, program)) {
    text +=
        cat(padded(text.empty() ? "  collectives" : ""), volume.kind, " ", volume.axis, "=",
            volume.ranks, "  ", volume.calls, " of ", size_range(volume.smallest, volume.largest),
            "  a rank sends ", human_bytes(static_cast<double>(volume.sent_bytes)), "\n");
  }
  if (text.empty()) return text;
  return text + cat(padded(""), "copied for packing ",
                    human_bytes(static_cast<double>(packing_bytes(plan, program))), "\n");
}

std::string program_lines(const Plan& plan, ProgramKind program) {
  const std::vector<Step>& steps = plan.program(program);
  std::string text = cat(padded(cat("program ", program_name(program))), steps.size(), " steps",
                         phase_counts(steps), "\n");
  text += cat(padded("  flops"), human_count(program_flops(plan, program)), "  memory traffic ",
              human_bytes(program_traffic(plan, program)), "\n");
  text += time_line(plan, program) + collective_lines(plan, program);
  const Peak peak = peak_memory(plan, program);
  text += cat(padded("  peak"), human_bytes(static_cast<double>(peak.total)), " at ",
              step_label(program, peak.step, steps[peak.step]), "\n", padded("  of it"));
  std::vector<std::string> kinds;
  for (int i = 0; i < kBufferKinds; ++i) {
    if (peak.bytes[i] == 0) continue;
    kinds.push_back(cat(buffer_kind_name(static_cast<BufferKind>(i)), " ",
                        human_bytes(static_cast<double>(peak.bytes[i]))));
  }
  return text + join(kinds, "  ") + "\n";
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
    if (buffer.common >= 0) continue;
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

std::string short_time(double seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds >= 60) return human_duration(seconds);
  char text[32];
  const auto [scale, unit] = seconds < 1e-3 ? std::pair{1e6, "us"}
                             : seconds < 1  ? std::pair{1e3, "ms"}
                                            : std::pair{1.0, "s"};
  std::snprintf(text, sizeof text, "%.3g %s", seconds * scale, unit);
  return text;
}

std::string summarize(const Plan& plan) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : plan.mesh.axes) axes.push_back(cat(axis.name, "=", axis.size));
  std::string text = cat(padded("plan"), plan.name, "  backend ", plan.backend, "  mesh ",
                         axes.empty() ? "1 rank" : join(axes, " "), "\n");
  text += cat(padded("bound"), plan.params.size(), " params  ", plan.states.size(), " states  ",
              plan.inputs.size(), " inputs  ", plan.outputs.size(), " outputs\n");
  text += cat(padded("streams"), join(plan.streams, " "), "  events ", plan.num_events, "\n");
  text += cat(padded("arena"), human_bytes(static_cast<double>(plan.arena_bytes)), " (",
              plan.arena_bytes, " bytes)  persistent ",
              human_bytes(static_cast<double>(plan.persistent_bytes)), "\n");
  for (const CommonSpace& space : plan.common) {
    text += cat(padded("common"), human_bytes(static_cast<double>(space.bytes)), " (", space.bytes,
                " bytes)  gathered weights, once per host for ", space.axis, "=",
                plan.mesh.axis_size(space.axis), "\n");
  }
  text += weights_line(plan) + bucket_lines(plan);
  Peak highest;
  ProgramKind highest_program = ProgramKind::Last;
  for (int i = 0; i < kPrograms; ++i) {
    const auto program = static_cast<ProgramKind>(i);
    if (plan.program(program).empty()) continue;
    text += program_lines(plan, program);
    const Peak peak = peak_memory(plan, program);
    if (peak.total >= highest.total) {
      highest = peak;
      highest_program = program;
    }
  }
  return text + largest_lines(plan, highest_program, highest.step);
}

}  // namespace weft

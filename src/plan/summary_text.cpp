// Prints the summary: a few aligned lines per program.
#include <algorithm>

#include "base/text.h"
#include "plan/summary.h"

namespace weft {
namespace {

constexpr size_t kLargest = 5;  // number of buffer groups listed
constexpr size_t kSlowest = 5;  // number of ops listed
constexpr size_t kBucketKinds = 8;

std::string padded(std::string_view label) {
  std::string text(label);
  text.resize(std::max<size_t>(text.size() + 1, 14), ' ');
  return text;
}

std::string percent(double part, double total) {
  return cat(static_cast<int64_t>(total > 0 ? part / total * 100 + 0.5 : 0), "%");
}

std::string bytes(int64_t count) {
  return human_bytes(static_cast<double>(count));
}

std::string times(int64_t count) {
  return count > 1 ? cat(" x ", count) : std::string();
}

std::string largest_lines(const std::vector<BufferGroup>& groups) {
  std::string text;
  for (size_t i = 0; i < std::min(kLargest, groups.size()); ++i) {
    const BufferGroup& group = groups[i];
    text += cat(padded(i == 0 ? "largest" : ""), bytes(group.bytes), "  ", group.name, " (",
                buffer_kind_name(group.kind), ")", times(group.count), "\n");
  }
  return text;
}

std::string size_range(int64_t smallest, int64_t largest) {
  return smallest == largest ? bytes(smallest) : cat(bytes(smallest), " to ", bytes(largest));
}

std::string time_line(const ProgramSummary& program) {
  const PlanTime& time = program.time;
  std::string text = padded("  time") + short_time(time.seconds) + " predicted";
  if (time.collective_seconds > 0) {
    text += cat("  exposed comm ", percent(time.exposed_seconds(), time.seconds));
  }
  for (size_t i = 0; i < std::min(kSlowest, program.ops.size()); ++i) {
    text += cat("  ", program.ops[i].op, " ", percent(program.ops[i].seconds, time.seconds));
  }
  return text + "\n";
}

std::string weights_line(const std::optional<LowWeights>& low) {
  if (!low) return "";
  if (low->kept_bytes == 0) {
    return cat(padded("weights"), "cast to ", dtype_name(low->dtype), " for every use\n");
  }
  return cat(padded("weights"), "kept in ", dtype_name(low->dtype), " too, ",
             bytes(low->kept_bytes), ", written by the update\n");
}

std::string bucket_lines(const PlanSummary& summary) {
  const std::vector<NamedBytes>& kinds = summary.buckets;
  std::string text;
  for (size_t i = 0; i < std::min(kBucketKinds, kinds.size()); ++i) {
    text += cat(padded(i == 0 ? "buckets" : ""), bytes(kinds[i].bytes), "  ", kinds[i].name,
                times(kinds[i].count), "\n");
  }
  if (kinds.size() > kBucketKinds) {
    text += cat(padded(""), "and ", kinds.size() - kBucketKinds, " other kinds; ",
                summary.bucket_count, " buckets in all\n");
  }
  return text;
}

// The collectives of one rank; empty for a program without any.
std::string collective_lines(const ProgramSummary& program) {
  std::string text;
  for (const CollectiveVolume& volume : program.collectives) {
    text +=
        cat(padded(text.empty() ? "  collectives" : ""), volume.kind, " ", volume.axis, "=",
            volume.ranks, "  ", volume.calls, " of ", size_range(volume.smallest, volume.largest),
            "  sent per rank ", bytes(volume.sent_bytes),
            volume.packed_bytes > 0 ? cat("  packed ", bytes(volume.packed_bytes)) : "", "\n");
  }
  if (text.empty()) return text;
  text += cat(padded(""), "copied for packing ", bytes(program.packing_bytes), "\n");
  const std::map<std::string, double>& exposed = program.time.exposed_by_axis;
  if (exposed.size() < 2) return text;
  std::vector<std::string> axes;
  for (const auto& [axis, seconds] : exposed) axes.push_back(cat(axis, " ", short_time(seconds)));
  return text + cat(padded("  exposed"), join(axes, "  "), "\n");
}

std::string program_lines(const ProgramSummary& program) {
  std::string text =
      cat(padded(cat("program ", program_name(program.kind))), program.steps, " steps");
  for (const PhaseSteps& phase : program.phases) {
    text += cat("  ", phase_name(phase.phase), " ", phase.steps);
  }
  if (program.recomputed > 0) text += cat("  recomputed ", program.recomputed);
  text += cat("\n", padded("  flops"), human_count(program.flops), "  memory traffic ",
              human_bytes(program.traffic_bytes), "\n");
  text += time_line(program) + collective_lines(program);
  text += cat(padded("  peak"), bytes(program.peak.total), " at ", program.peak_label, "\n",
              padded("  of it"));
  std::vector<std::string> kinds;
  for (int i = 0; i < kBufferKinds; ++i) {
    const int64_t live = program.peak.bytes[static_cast<size_t>(i)];
    if (live == 0) continue;
    kinds.push_back(cat(buffer_kind_name(static_cast<BufferKind>(i)), " ", bytes(live)));
  }
  return text + join(kinds, "  ") + "\n";
}

}  // namespace

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

std::string to_string(const Replanning& replanning) {
  const std::string change =
      replanning.asked_prefetch
          ? cat("compile.prefetch = 0 instead of ", *replanning.asked_prefetch,
                ", no memory left for overlap")
          : cat(bytes(replanning.reserved_bytes), " reserved for fragmentation");
  return cat("replanned ", replanning.times,
             replanning.times == 1 ? " time: " : " times: ", change);
}

std::string to_string(const PlanSummary& summary) {
  const auto axes = [](const std::vector<MeshAxis>& list) {
    std::vector<std::string> texts;
    for (const MeshAxis& axis : list) texts.push_back(cat(axis.name, "=", axis.size));
    return join(texts, " ");
  };
  const Mesh& mesh = summary.mesh;
  std::string text = cat(padded("plan"), summary.name, "  backend ", summary.backend, "  mesh ",
                         mesh.axes.empty() ? "1 rank" : axes(mesh.axes),
                         mesh.expert_axes.empty() ? "" : "; ", axes(mesh.expert_axes), "\n");
  text += cat(padded("bound"), summary.params, " params  ", summary.states, " states  ",
              summary.inputs, " inputs  ", summary.outputs, " outputs\n");
  text += cat(padded("streams"), join(summary.streams, " "), "  events ", summary.events, "\n");
  text += cat(padded("arena"), bytes(summary.arena_bytes), " (", summary.arena_bytes,
              " bytes)  persistent ", bytes(summary.persistent_bytes), "\n");
  for (const SharedSpace& space : summary.shared) {
    text += cat(padded("shared"), bytes(space.bytes), " (", space.bytes,
                " bytes)  gathered weights, once per host for ", space.axis, "=",
                summary.mesh.axis_size(space.axis), "\n");
  }
  if (summary.replanning.times > 0) {
    text += cat(padded("memory"), to_string(summary.replanning), "\n");
  }
  text += weights_line(summary.low_weights) + bucket_lines(summary);
  for (const ProgramSummary& program : summary.programs) text += program_lines(program);
  return text + largest_lines(summary.largest);
}

}  // namespace weft

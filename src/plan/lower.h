// Graphs + kernel table + DeviceSpec -> Plan: picks kernels, buffers, streams, and memory offsets.
#pragma once

#include <span>
#include <string_view>

#include "config/device_spec.h"
#include "graph/graph.h"
#include "plan/kernel.h"
#include "plan/plan.h"

namespace weft {

struct LowerOptions {
  std::string_view backend;  // its name, for messages and the plan's header
  std::span<const Kernel> kernels;
  const DeviceSpec& device;
  bool common_gather = true;  // gathered weights once per host, where device and kernel allow it
  bool ordered_sums = false;  // sums over ranks only by kernels that promise their order
};

// Which program a graph becomes. Micro leaves out the optimizer phase and what only it needs, so
// the graph of a training step serves as source of both Micro and Last. Inputs, parameters and
// states of the same name are one buffer in all programs.
struct ProgramSource {
  ProgramKind kind = ProgramKind::Last;
  const Graph* graph = nullptr;
};

// Throws UserError when an op has no kernel. Neither allocates nor touches a device.
Plan lower(std::span<const ProgramSource> sources, const LowerOptions& options);

}  // namespace weft

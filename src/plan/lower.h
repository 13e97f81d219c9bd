// Graphs + kernel table + DeviceSpec -> Plan: picks kernels, buffers, streams, and memory offsets.
#pragma once

#include <map>
#include <span>
#include <string_view>

#include "config/device_spec.h"
#include "graph/graph.h"
#include "plan/kernel.h"
#include "plan/packed_dims.h"
#include "plan/plan.h"

namespace weft {

// A result of a step as the graph knows it. The plan does not need this; tools that compare plans
// do.
struct PlanValue {
  std::string name;
  TensorType type;      // global, with its placement
  DimParts parts;       // of packed dims
  bool is_read = true;  // by another node; the results of fused ops may not be
};

struct LowerOptions {
  std::string_view backend;  // its name, for messages and the plan's header
  std::span<const Kernel> kernels;
  const DeviceSpec& device;
  bool shared_gather = true;  // gathered weights once per host, if possible
  bool ordered_sums = false;  // sums over ranks only by kernels with a fixed order
  // Receives the results of every step of the program Last; nullptr: not wanted.
  std::vector<std::vector<PlanValue>>* values = nullptr;
  std::map<std::string, DimParts> packed_params = {};  // for these
};

// Which program a graph becomes. Micro leaves out the optimizer phase and what only it needs, so
// Micro and Last are both made from the graph of the training step. Inputs, parameters and states
// of the same name share one buffer across programs.
struct ProgramSource {
  ProgramKind kind = ProgramKind::Last;
  const Graph* graph = nullptr;
};

// Throws UserError if an op has no kernel. Neither allocates device memory nor uses a device.
Plan lower(std::span<const ProgramSource> sources, const LowerOptions& options);

}  // namespace weft

// From a config to a plan: model -> graph -> passes -> plan. The only place that knows all of these
// layers. It allocates nothing and touches no device, so any plan can be made on any machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/device_spec.h"
#include "config/tuning.h"
#include "model/model.h"
#include "passes/pass.h"
#include "plan/lower.h"
#include "plan/plan.h"
#include "plan/summary.h"
#include "plan/timing.h"

namespace weft {

// Everything that compilation determines about a run.
struct Compiled {
  ModelSpec spec;
  std::vector<ParamInfo> params;  // in registration order
  DeviceSpec device;              // the share of one rank
  Tuning tuning;                  // library algorithms
  Plan plan;
  std::vector<PassReport> reports;  // of the training step
  PlanTime estimate;                // of one optimizer step, per rank
  double flops_per_token = 0;       // that training the model needs
  double milliseconds = 0;
  Replanning replanning;  // how the plan was made to fit
  // The results of every step of the program Last; empty unless asked for.
  std::vector<std::vector<PlanValue>> values;
};

struct CompileOptions {
  int64_t data_vocab = 0;  // replaces model.vocab_size = -1; 0: no data
  int64_t ranks = 1;
  bool keep_values = false;  // whether to fill Compiled::values
};

// How the config wants passes run over a graph: which ones are disabled, and the dumps
// "<folder>/<graph>-12-fuse.before.txt" and ".after.txt" of the requested ones.
RunOptions run_options(const Config& config, Goal goal, const Mesh& mesh,
                       const std::string& graph_name);

// Resolves the model and compiles the training step, and the evaluation if validation is on. The
// plan is the same on all ranks. Throws UserError.
Compiled compile(const Config& config, const CompileOptions& options = {});

// The same for a model whose sizes are known, for example from a config.json.
Compiled compile(const Config& config, const ModelSpec& spec, int64_t ranks = 1);

// The cost of the plan, and how it was made to fit.
PlanSummary summarize(const Compiled& compiled);

// The machine that plans of this config are made for.
DeviceSpec device_spec_of(const Config& config);

// Why the mesh is likely to be slow; empty if it is not.
std::string mesh_warning(const Compiled& compiled);

// The mesh of the config for `ranks` ranks, outermost first: dp_replicate, dp_shard, cp, tp.
// Axes of size 1 are left out, except dp_shard if the config asks for it.
Mesh mesh_of(const Config& config, int64_t ranks);

// A forward-only plan: its `eval` program computes the loss or the logits, as `build` says.
Compiled compile_forward(const Config& config, const ModelSpec& spec, const BuildOptions& build);

// Bytes that the plan may use: from the device spec, or the memory of this machine.
int64_t memory_limit(const Compiled& compiled);

}  // namespace weft

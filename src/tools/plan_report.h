// What weft plan reports: the summary of a plan with the model, the time per step and whether it
// fits the device. Built once as data, then printed as text or as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "compile/fit.h"
#include "config/config.h"
#include "passes/pass.h"
#include "plan/summary.h"

namespace weft {

// One optimizer step of one rank, with streams running concurrently.
struct StepForecast {
  PlanTime time;
  int64_t micro_batches = 1;
  double tokens_per_second = 0;
  double flops_per_token = 0;        // that the model needs
  std::optional<double> peak_flops;  // of the device, if its spec has it
  std::optional<double> mfu;         // docs/metrics.md
};

// The memory of one rank.
struct MemoryNeed {
  int64_t plan_bytes = 0;
  int64_t limit_bytes = 0;   // available to a plan
  int64_t driver_bytes = 0;  // of driver and libraries, on top of it
  bool fits() const { return plan_bytes <= limit_bytes; }
};

struct PlanReport {
  ModelSpec model;
  int64_t parameters = 0;
  int64_t graph_nodes = 0;
  std::vector<PassReport> passes;
  PlanSummary plan;
  int64_t ranks = 1;
  std::string device;
  StepForecast step;
  MemoryNeed memory;
  bool searched = false;                   // whether a change that makes it fit was searched for
  std::optional<Alternative> alternative;  // the result of the search
  std::string mesh_warning;                // see compile.h; empty: none
  double compile_seconds = 0;
};

struct ReportOptions {
  int64_t ranks = 1;
  bool search = true;  // for an alternative, if the plan does not fit
};
PlanReport make_report(const Config& config, const Compiled& compiled,
                       const ReportOptions& options);

// Text for people, without the passes.
std::string to_text(const PlanReport& report);

// JSON for programs, with everything the text only summarizes: one object, sizes in bytes, times in
// seconds. docs/plan_json.md lists the keys.
std::string to_json(const PlanReport& report);

}  // namespace weft

// What weft plan says: the summary of a plan with the model, the time of a step and whether the
// device holds it. Made once, as data, and printed as text or as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "passes/pass.h"
#include "plan/summary.h"
#include "train/compile.h"
#include "train/fit.h"

namespace weft {

// One optimizer step of one rank, as the streams run it beside each other.
struct StepForecast {
  PlanTime time;
  int64_t micro_batches = 1;
  double tokens_per_second = 0;
  double flops_per_token = 0;        // that the model needs
  std::optional<double> peak_flops;  // of the device, where its spec tells
  std::optional<double> mfu;         // docs/metrics.md
};

// A rank's memory.
struct MemoryNeed {
  int64_t plan_bytes = 0;
  int64_t limit_bytes = 0;   // that a plan may use
  int64_t beside_bytes = 0;  // of driver and libraries, on top of it
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
  bool searched = false;                   // for a change that would make it fit
  std::optional<Alternative> alternative;  // that was found
  double compile_seconds = 0;
};

struct ReportOptions {
  int64_t ranks = 1;
  bool search = true;  // for an alternative, if the plan does not fit
};
PlanReport make_report(const Config& config, const Compiled& compiled,
                       const ReportOptions& options);

// Lines for a person, without the passes.
std::string to_text(const PlanReport& report);

// The same for a program, and all of what lines for a person only begin: one object, sizes in
// bytes, times in seconds. docs/plan_json.md lists the keys.
std::string to_json(const PlanReport& report);

}  // namespace weft

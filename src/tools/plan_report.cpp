#include "tools/plan_report.h"

#include <cmath>

#include "base/text.h"
#include "compile/mfu.h"
#include "config/derived.h"
#include "train/headline.h"

namespace weft {
namespace {

std::string bytes(int64_t count) {
  return human_bytes(static_cast<double>(count));
}

StepForecast forecast_step(const Config& config, const Compiled& compiled, int64_t ranks) {
  const Degrees degrees = degrees_of(config, ranks);
  const int64_t micro_batches = accumulation_steps(config, degrees);
  const int64_t tokens = global_batch_size(config, degrees) * config.training.seq_len;
  const double rate =
      static_cast<double>(tokens) / static_cast<double>(ranks) / compiled.estimate.seconds;
  StepForecast step{.time = compiled.estimate,
                    .micro_batches = micro_batches,
                    .tokens_per_second = rate,
                    .flops_per_token = compiled.flops_per_token,
                    .peak_flops = peak_flops(config, compiled.device),
                    .mfu = {}};
  if (step.peak_flops) {
    step.mfu = model_flops_utilization(step.flops_per_token, rate, *step.peak_flops);
  }
  return step;
}

MemoryNeed memory_need(const Compiled& compiled) {
  const DeviceSpec& device = compiled.device;
  const bool alone = compiled.plan.mesh.ranks() == 1;
  return {.plan_bytes = rank_bytes(compiled.plan),
          .limit_bytes = memory_limit(compiled),
          .driver_bytes = device.context_bytes + (alone ? 0 : device.collectives_bytes)};
}

std::string step_lines(const PlanReport& report) {
  const StepForecast& step = report.step;
  const PlanTime& time = step.time;
  std::string text =
      cat("step time     ", short_time(time.seconds), " predicted",
          step.micro_batches > 1 ? cat(", ", step.micro_batches, " micro-batches") : std::string(),
          "\ncomputing     ", short_time(time.compute_seconds), "\n");
  if (time.collective_seconds > 0) {
    text += cat("exposed comm  ", short_time(time.exposed_seconds()), " of ",
                short_time(time.collective_seconds), " of collectives\n");
  }
  for (const PassReport& pass : report.passes) {
    if (pass.pass == async_tp.name && pass.changed) text += cat("async tp      ", pass.note, "\n");
  }
  text += cat("throughput    ", human_count(step.tokens_per_second), " tok/s",
              report.ranks > 1 ? " per rank" : "");
  if (step.mfu) {
    text += cat(", mfu ", std::llround(*step.mfu * 100), " % of ", human_count(*step.peak_flops),
                "FLOP/s (", report.device, ")");
  }
  return text + "\n";
}

std::string memory_lines(const PlanReport& report) {
  const MemoryNeed& memory = report.memory;
  std::string text =
      cat("fits          ", memory.fits() ? "yes" : "no", ": ", bytes(memory.plan_bytes), " of ",
          bytes(memory.limit_bytes), " (", report.device, ")\n");
  if (memory.driver_bytes > 0) {
    const int64_t all = memory.plan_bytes + memory.driver_bytes;
    text += cat("device memory ", bytes(all), " with ", bytes(memory.driver_bytes),
                " of driver and libraries (", all, " bytes)\n");
  }
  if (report.searched) text += cat("to fit        ", advice(report.alternative), "\n");
  return text;
}

}  // namespace

PlanReport make_report(const Config& config, const Compiled& compiled,
                       const ReportOptions& options) {
  PlanReport report{.model = compiled.spec,
                    .parameters = num_params(compiled.params),
                    .graph_nodes = static_cast<int64_t>(compiled.reports.back().nodes_after),
                    .passes = compiled.reports,
                    .plan = summarize(compiled),
                    .ranks = options.ranks,
                    .device = compiled.device.name,
                    .step = forecast_step(config, compiled, options.ranks),
                    .memory = memory_need(compiled),
                    .searched = false,
                    .alternative = {},
                    .mesh_warning = mesh_warning(compiled),
                    .compile_seconds = compiled.milliseconds * 1e-3};
  report.searched = options.search && !report.memory.fits();
  if (report.searched) {
    report.alternative = find_alternative(config, compiled.spec, options.ranks);
  }
  return report;
}

std::string to_text(const PlanReport& report) {
  return cat("model         ", describe_model(report.model, report.parameters), "\n",
             "graph         ", report.graph_nodes, " nodes\n", to_string(report.plan), "\n",
             step_lines(report), memory_lines(report),
             report.mesh_warning.empty() ? "" : cat("WARNING       ", report.mesh_warning, "\n"),
             "compiled in   ", static_cast<int64_t>(report.compile_seconds * 1e3), " ms");
}

}  // namespace weft

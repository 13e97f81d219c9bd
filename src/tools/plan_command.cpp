// weft plan CONFIG: compiles without allocating or running anything, and says what it would take.
#include <cmath>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "config/derived.h"
#include "config/load.h"
#include "config/validate.h"
#include "plan/summary.h"
#include "plan/text.h"
#include "tools/commands.h"
#include "train/compile.h"
#include "train/fit.h"
#include "train/headline.h"
#include "train/mfu.h"
#include "train/open_sets.h"
#include "train/training_data.h"

namespace weft {

namespace {

struct PlanArguments {
  std::string config;
  std::string text_file;
  std::string spec_file;
  int64_t ranks = 1;
  bool passes = false;
  bool fit = true;
};

// One optimizer step as the streams run it beside each other, and what that means in tokens.
void log_time(const Config& config, const Compiled& compiled, int64_t ranks) {
  const PlanTime& time = compiled.estimate;
  const int64_t micro_batches = accumulation_steps(config, ranks);
  log_line(cat("step time     ", short_time(time.seconds), " predicted",
               micro_batches > 1 ? cat(", ", micro_batches, " micro-batches") : std::string()));
  log_line(cat("computing     ", short_time(time.compute_seconds)));
  if (time.collective_seconds > 0) {
    log_line(cat("exposed comm  ", short_time(time.exposed_seconds()), " of ",
                 short_time(time.collective_seconds), " of collectives"));
  }
  const int64_t sequences = config.training.local_batch_size * micro_batches;
  const double tokens = static_cast<double>(sequences * config.training.seq_len);
  const double rate = tokens / time.seconds;
  std::string mfu;
  if (const auto peak = peak_flops(config, compiled.device)) {
    const double share = model_flops_utilization(compiled.flops_per_token, rate, *peak);
    mfu = cat(", mfu ", std::llround(share * 100), " % of ", human_count(*peak), "FLOP/s (",
              compiled.device.name, ")");
  }
  log_line(cat("throughput    ", human_count(rate), " tok/s", ranks > 1 ? " per rank" : "", mfu));
}

// Whether the device holds the plan.
bool log_fits(const Compiled& compiled) {
  const int64_t have = memory_limit(compiled);
  const int64_t need = rank_bytes(compiled.plan);
  const auto bytes = [](int64_t count) { return human_bytes(static_cast<double>(count)); };
  log_line(cat("fits          ", need <= have ? "yes" : "no", ": ", bytes(need), " of ",
               bytes(have), " (", compiled.device.name, ")"));
  const DeviceSpec& device = compiled.device;
  const bool alone = compiled.plan.mesh.ranks() == 1;
  const int64_t beside = device.context_bytes + (alone ? 0 : device.collectives_bytes);
  if (beside > 0) {
    log_line(cat("device memory ", bytes(need + beside), " with ", bytes(beside),
                 " of driver and libraries (", need + beside, " bytes)"));
  }
  return need <= have;
}

// What would make it fit, found by compiling alternatives.
void log_alternative(const Compiled& compiled, const Config& config, int64_t ranks) {
  const std::optional<Alternative> found = find_alternative(config, compiled.spec, ranks);
  log_line(cat("to fit        ", advice(found)));
}

ExitCode run_plan(const PlanArguments& arguments, const std::vector<std::string>& overrides) {
  Config config = load_config(arguments.config, overrides);
  validate(config, arguments.ranks, open_sets());
  Compiled compiled =
      compile(config, {.data_vocab = data_vocabulary(config), .ranks = arguments.ranks});
  if (arguments.passes) log_line(to_string(compiled.reports));
  if (!arguments.text_file.empty()) write_text_file(arguments.text_file, print_plan(compiled.plan));
  if (!arguments.spec_file.empty()) {
    write_text_file(arguments.spec_file, device_spec_to_toml(device_spec_of(config)));
  }
  log_line(cat("model         ", describe_model(compiled)));
  log_line(cat("graph         ", compiled.reports.back().nodes_after, " nodes"));
  log_line(summarize(compiled.plan));
  log_time(config, compiled, arguments.ranks);
  const bool fits = log_fits(compiled);
  if (!fits && arguments.fit) log_alternative(compiled, config, arguments.ranks);
  log_line(cat("compiled in   ", static_cast<int64_t>(compiled.milliseconds), " ms"));
  return ExitCode::Done;
}

}  // namespace

void add_plan_command(Command app, const Finish& finish) {
  auto arguments = std::make_shared<PlanArguments>();
  Command command = app.add_command(
      "plan", "compile only: steps, FLOPs, peak memory, communication and time; allocates nothing");
  command.add_option("CONFIG", arguments->config, "config file, as for train").required();
  command.add_option("--ranks", arguments->ranks, "plan for one of so many ranks")
      .range(1, 1 << 20)
      .show_default();
  command.add_flag("--passes", arguments->passes, "also report what each pass did");
  command.add_flag("!--no-fit", arguments->fit,
                   "if it does not fit, do not look for a change that would make it");
  command.add_option("--spec", arguments->spec_file,
                     "write the device spec to this file, to change it and name it in device.spec");
  command.add_option("--text", arguments->text_file, "write the whole plan to this file");
  command.allow_overrides();
  command.on_run([=] { finish(run_plan(*arguments, command.overrides())); });
}

}  // namespace weft

// weft plan CONFIG: compiles without allocating or running anything, and reports the cost.
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "compile/compile.h"
#include "compile/config_choices.h"
#include "config/load.h"
#include "config/validate.h"
#include "plan/text.h"
#include "tools/commands.h"
#include "tools/plan_report.h"
#include "train/training_data.h"

namespace weft {

namespace {

struct PlanArguments {
  std::string config;
  std::string text_file;
  std::string spec_file;
  int64_t ranks = 1;
  bool passes = false;
  bool json = false;
  bool fit = true;
};

ExitCode run_plan(const PlanArguments& arguments, const std::vector<std::string>& overrides) {
  Config config = load_config(arguments.config, overrides);
  validate(config, arguments.ranks, config_choices());
  Compiled compiled =
      compile(config, {.data_vocab = data_vocabulary(config), .ranks = arguments.ranks});
  if (!arguments.text_file.empty()) write_text_file(arguments.text_file, print_plan(compiled.plan));
  if (!arguments.spec_file.empty()) {
    write_text_file(arguments.spec_file, device_spec_to_toml(device_spec_of(config)));
  }
  const PlanReport report =
      make_report(config, compiled, {.ranks = arguments.ranks, .search = arguments.fit});
  if (arguments.passes && !arguments.json) log_line(to_string(report.passes));
  log_line(arguments.json ? to_json(report) : to_text(report));
  return ExitCode::Done;
}

}  // namespace

void add_plan_command(Command app, const Finish& finish) {
  auto arguments = std::make_shared<PlanArguments>();
  Command command = app.add_command(
      "plan", "compile only: steps, FLOPs, peak memory, communication and time; allocates nothing");
  command.add_option("CONFIG", arguments->config, "config file, as for train").required();
  command.add_option("--ranks", arguments->ranks, "number of ranks to plan for")
      .range(1, 1 << 20)
      .show_default();
  command.add_flag("--passes", arguments->passes, "also report what each pass did");
  command.add_flag(
      "--json", arguments->json,
      "print the full report, including passes, as one JSON object; see docs/plan_json.md");
  command.add_flag("!--no-fit", arguments->fit,
                   "do not search for a change that makes an oversized plan fit");
  command.add_option("--spec", arguments->spec_file,
                     "write the device spec to this file, to be edited and used as device.spec");
  command.add_option("--text", arguments->text_file, "write the full plan to this file");
  command.allow_overrides();
  command.on_run([=] { finish(run_plan(*arguments, command.overrides())); });
}

}  // namespace weft

// weft compare A.toml [B.toml]: two plans in lock-step on the same data.
#include <memory>
#include <optional>

#include "base/log.h"
#include "compile/validate_run.h"
#include "config/load.h"
#include "tools/commands.h"
#include "tools/compare.h"
#include "train/training_data.h"

namespace weft {

namespace {

struct CompareArguments {
  std::string one, two;
  int64_t ranks_one = 1, ranks_two = 1;
  CompareOptions options;
};

// The overrides of one run: those of both, and those that begin with its letter, "--a.".
std::vector<std::string> overrides_of(char run, const std::vector<std::string>& overrides) {
  std::vector<std::string> own;
  for (const std::string& argument : overrides) {
    const bool of_one = argument.starts_with("--a."), of_two = argument.starts_with("--b.");
    if (!of_one && !of_two) own.push_back(argument);
    if ((of_one && run == 'a') || (of_two && run == 'b')) own.push_back("--" + argument.substr(4));
  }
  return own;
}

ComparedRun make_run(const std::string& file, int64_t ranks,
                     const std::vector<std::string>& overrides) {
  const Config config = load_config(file, overrides);
  validate_run(config, ranks);
  return {config,
          compile(config,
                  {.data_vocab = data_vocabulary(config), .ranks = ranks, .keep_values = true})};
}

ExitCode run_compare(const CompareArguments& arguments, const std::vector<std::string>& overrides) {
  const std::string& second = arguments.two.empty() ? arguments.one : arguments.two;
  const ComparedRun one =
      make_run(arguments.one, arguments.ranks_one, overrides_of('a', overrides));
  const ComparedRun two = make_run(second, arguments.ranks_two, overrides_of('b', overrides));
  const PlanComparison comparison = compare_plans(one, two, arguments.options);
  log_line(to_string(comparison));
  return comparison.first ? ExitCode::CheckFailed : ExitCode::Done;
}

}  // namespace

void add_compare_command(Command app, const Finish& finish) {
  auto arguments = std::make_shared<CompareArguments>();
  Command command = app.add_command(
      "compare",
      "run two plans on the same data and name the first value that differs; --section.key=value "
      "sets a key of both, --a.section.key=value and --b.section.key=value of one");
  command.add_option("A", arguments->one, "config file of the first run").required();
  command.add_option("B", arguments->two, "config file of the second run; default: A");
  command.add_option("--ranks-a", arguments->ranks_one, "ranks of the first run, as threads")
      .range(1, kMaxRanks)
      .show_default();
  command.add_option("--ranks-b", arguments->ranks_two, "ranks of the second run, as threads")
      .range(1, kMaxRanks)
      .show_default();
  command.add_option("--steps", arguments->options.steps, "training steps")
      .range(1, 1000)
      .show_default();
  command.add_option("--tolerance", arguments->options.tolerance,
                     "allowed difference, relative to the largest element of a value; default: "
                     "1e-4, or 0.05 if a run computes in bfloat16 or float16");
  command.allow_overrides();
  command.on_run([=] { finish(run_compare(*arguments, command.overrides())); });
}

}  // namespace weft

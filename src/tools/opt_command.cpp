// weft opt: runs chosen passes over graph text. Also lists ops, passes and config keys.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "compile/compile.h"
#include "compile/config_choices.h"
#include "config/device_spec.h"
#include "config/load.h"
#include "config/validate.h"
#include "graph/ops_markdown.h"
#include "graph/text.h"
#include "passes/pass.h"
#include "passes/passes_markdown.h"
#include "tools/commands.h"

namespace weft {

namespace {

constexpr int64_t kMaxGraphBytes = int64_t{256} << 20;

struct OptArguments {
  std::string input;
  std::vector<std::string> passes;
  std::string config;
  bool list_ops = false;
  bool list_passes = false;
  bool list_keys = false;
  bool markdown = false;
  bool report = false;
};

std::vector<const Pass*> find_passes(const std::vector<std::string>& names) {
  if (names.empty()) return {pipeline().begin(), pipeline().end()};
  check_pass_names(names, "command line: --passes");
  std::vector<const Pass*> passes;
  for (const auto& name : names) passes.push_back(find_pass(name));
  return passes;
}

std::string read_standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

Graph read_graph(const std::string& path) {
  bool piped = path == "-";
  std::string text = piped ? read_standard_input() : read_text_file(path, kMaxGraphBytes);
  return parse_graph(text, piped ? "standard input" : path);
}

ExitCode run_opt(const OptArguments& arguments, const std::vector<std::string>& overrides) {
  if (arguments.list_keys) std::fputs(config_reference_markdown(config_choices()).c_str(), stdout);
  if (arguments.list_ops) {
    if (arguments.markdown) std::fputs(ops_markdown().c_str(), stdout);
    for (const OpDef* op : all_ops()) {
      if (!arguments.markdown) log_line(cat(op->signature, "\n    ", op->doc));
    }
  }
  if (arguments.list_passes) {
    if (arguments.markdown) std::fputs(passes_markdown().c_str(), stdout);
    for (const Pass* pass : all_passes()) {
      if (!arguments.markdown) log_line(cat(pass->name, "\n    ", pass->doc));
    }
  }
  if (arguments.list_keys || arguments.list_ops || arguments.list_passes) return ExitCode::Done;
  USER_CHECK(!arguments.input.empty(),
             "command line: no graph; give a file or - for standard input");

  Config config = arguments.config.empty() ? parse_config("", "command line", overrides)
                                           : load_config(arguments.config, overrides);
  std::vector<const Pass*> passes = find_passes(arguments.passes);
  Graph graph = read_graph(arguments.input);
  validate(config, graph.mesh().ranks(), config_choices());
  const bool trains = graph.find_output({OutputRole::Loss}) != nullptr;
  const Goal goal = trains && graph.name() != "eval" ? Goal::Train : Goal::Evaluate;
  std::vector<PassReport> reports = run_passes(graph, passes, config, device_spec_of(config),
                                               run_options(config, goal, graph.mesh(), "opt"));
  if (arguments.report) std::fputs(to_string(reports).c_str(), stderr);
  std::fputs(print_graph(graph).c_str(), stdout);
  return ExitCode::Done;
}

}  // namespace

void add_opt_command(Command app, const Finish& finish) {
  auto arguments = std::make_shared<OptArguments>();
  Command command = app.add_command("opt", "run passes over a graph in text form");
  command.add_option("GRAPH", arguments->input, "graph text, or - for standard input");
  command.add_option("--passes", arguments->passes, "passes in order; default: the full pipeline")
      .comma_separated();
  command.add_option("--config", arguments->config, "config that the passes read");
  command.add_flag("--report", arguments->report, "report what each pass did on standard error");
  command.add_flag("--list-ops", arguments->list_ops, "list the ops");
  command.add_flag("--list-passes", arguments->list_passes, "list the passes");
  command.add_flag("--list-keys", arguments->list_keys, "list the config keys as Markdown");
  command.add_flag("--markdown", arguments->markdown, "lists as Markdown");
  command.allow_overrides();
  command.on_run([=] { finish(run_opt(*arguments, command.overrides())); });
}

}  // namespace weft

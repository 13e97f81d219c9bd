// weft train CONFIG [--section.key=value ...]
#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <memory>

#include "base/log.h"
#include "config/load.h"
#include "tools/commands.h"
#include "train/trainer.h"

namespace weft {

namespace {

// Signal handlers may only touch a lock-free atomic, and only a static one is in their reach.
std::atomic<bool> g_stop{false};

void request_stop(int) {
  g_stop.store(true);
}

ExitCode run_train(const std::string& path, const std::vector<std::string>& overrides) {
  Config config = load_config(path, overrides);
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  TrainResult result = train(config, g_stop);
  if (result.interrupted) {
    log_line(cat("stopped after step ", result.steps, " as asked"));
  }
  const std::string& folder = config.job.dump_folder;
  log_line(cat("wrote ", folder, "/config.toml, ", folder, "/plan.txt",
               config.metrics.file.empty() ? "" : cat(", ", folder, "/", config.metrics.file),
               result.weights_folder.empty() ? "" : cat(", ", result.weights_folder, "/")));
  return result.interrupted ? ExitCode::Interrupted : ExitCode::Done;
}

}  // namespace

void add_train_command(CLI::App& app, const Finish& finish) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "train", "train a model as a TOML file says; any key can be set: --section.key=value");
  command->add_option("CONFIG", *path, "config file; docs/config.md lists every key")->required();
  command->allow_extras();
  command->callback([=] { finish(run_train(*path, config_overrides(*command))); });
}

}  // namespace weft

// weft verify DIR: compares this build with a reference trace.
#include <cstdio>
#include <memory>
#include <optional>

#include "base/log.h"
#include "compile/compile.h"
#include "config/load.h"
#include "runtime/comm/launcher.h"
#include "tools/commands.h"
#include "tools/verify.h"
#include "train/session.h"

namespace weft {

namespace {

struct VerifyArguments {
  std::string folder;
  std::optional<std::string> backend;
  int64_t ranks = 1;
  VerifyTolerances tolerances;
};

// The keys that the user set; --backend is a shorthand for device.backend.
Config read_config(const std::optional<std::string>& backend,
                   const std::vector<std::string>& overrides) {
  Config config = parse_config("", "command line", overrides);
  if (!backend) return config;
  check_backend_option(*backend);
  const auto [given, is_new] =
      config.set_by_user.try_emplace("device.backend", cat("command line: --backend ", *backend));
  USER_CHECK(is_new, given->second, " conflicts with --backend ", *backend, "; use one of them");
  config.device.backend = *backend;
  return config;
}

ExitCode report(const std::vector<Comparison>& comparisons) {
  bool passed = true;
  for (const Comparison& comparison : comparisons) {
    char line[256];
    std::snprintf(line, sizeof line, "%-15s worst %.2e  allowed %.0e  %-4s  at %s",
                  comparison.quantity.c_str(), comparison.worst, comparison.tolerance,
                  comparison.passed() ? "ok" : "FAIL", comparison.where.c_str());
    log_line(line);
    passed &= comparison.passed();
  }
  return passed ? ExitCode::Done : ExitCode::CheckFailed;
}

// Errors in the trace or the keys are reported before any rank starts.
ExitCode run_verify(const VerifyArguments& arguments, const std::vector<std::string>& overrides) {
  const TraceRun run =
      open_trace(arguments.folder, read_config(arguments.backend, overrides), arguments.ranks);
  const Mesh mesh = mesh_of(run.config, arguments.ranks);
  if (mesh.axes.empty()) return report(verify_trace(run, arguments.tolerances));
  const int code =
      launch_ranks({.ranks = arguments.ranks, .report = {}}, [&](int64_t rank, ShmJob& job) {
        const std::unique_ptr<Communicator> comm =
            connect_devices(run.config, job.connect({mesh, rank}, comm_options(run.config)));
        const std::vector<Comparison> found = verify_trace(run, arguments.tolerances, *comm);
        return static_cast<int>(rank == 0 ? report(found) : ExitCode::Done);
      });
  return static_cast<ExitCode>(code);
}

}  // namespace

void add_verify_command(Command app, const Finish& finish) {
  auto arguments = std::make_shared<VerifyArguments>();
  Command command =
      app.add_command("verify",
                      "train a reference trace and compare losses, gradients and weights; set keys "
                      "that the trace does not fix with --section.key=value");
  command
      .add_option("DIR", arguments->folder, "folder with config.json, trace.json and safetensors")
      .required();
  command.add_option("--backend", arguments->backend, "reference, cpu or cuda").show_default("cpu");
  command.add_option("--ranks", arguments->ranks, "ranks that share the batch of the trace")
      .range(1, kMaxRanks)
      .show_default();
  command.add_option("--loss-tolerance", arguments->tolerances.loss, "losses and norms, relative")
      .show_default();
  command
      .add_option("--gradient-tolerance", arguments->tolerances.gradient,
                  "relative to each gradient's norm")
      .show_default();
  command
      .add_option("--weight-tolerance", arguments->tolerances.weight,
                  "relative to how far each weight moved")
      .show_default();
  command.allow_overrides();
  command.on_run([=] { finish(run_verify(*arguments, command.overrides())); });
}

}  // namespace weft

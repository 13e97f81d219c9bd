// weft bench tune CONFIG: measures which library algorithms run a training step fastest on this
// device, and writes them to a file for device.tuning.
#include <cstdio>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "compile/compile.h"
#include "compile/config_choices.h"
#include "config/load.h"
#include "config/validate.h"
#include "runtime/kernel_timer.h"
#include "tools/commands.h"
#include "train/training_data.h"

namespace weft {
namespace {

struct TuneArguments {
  std::string config;
  std::string output = "tuning.toml";
  int64_t ranks = 1;
};

// The calls of the plan without duplicates in shapes, dtypes and attributes.
std::vector<Call> distinct_calls(const Plan& plan) {
  std::vector<Call> calls;
  std::set<std::string> seen;
  for (const auto& program : plan.programs) {
    for (const Step& step : program) {
      Call call = call_of(step);
      if (call.op->traits.collective) continue;
      std::string text(call.op->name());
      for (const auto* types : {&call.operands, &call.results}) {
        for (const TensorType& type : *types) text += cat(" ", to_string(type));
      }
      for (const Attr& attr : call.attrs) text += cat(" ", to_string(attr));
      if (seen.insert(text).second) calls.push_back(std::move(call));
    }
  }
  return calls;
}

ExitCode run_tune(const TuneArguments& arguments, const std::vector<std::string>& overrides) {
  end_on_stop_signals();
  Config config = load_config(arguments.config, overrides);
  validate(config, arguments.ranks, config_choices());
  config.device.tuning.clear();       // to be measured
  OutputFile file(arguments.output);  // opened first to check that it can be written
  const Compiled compiled =
      compile(config, {.data_vocab = data_vocabulary(config), .ranks = arguments.ranks});
  const Backend& backend = find_backend(config.device.backend);
  const auto device =
      backend.make_device({.threads = config.device.threads, .tf32 = compiled.plan.tf32});
  KernelTimer timer(backend.kernels(), backend.name, *device);
  Tuning tuning;
  tuning.device = device->description();
  for (const Call& call : distinct_calls(compiled.plan)) {
    if (!call.op->traits.matmul) continue;  // only matmul libraries offer a choice
    const std::optional<TunedCall> tuned = timer.tune(call);
    if (!tuned || tuning.choices.contains(tuned->call)) continue;
    tuning.library = tuned->library;
    tuning.choices[tuned->call] = tuned->choice;
    std::printf("%9.4f -> %.4f ms  %s\n", tuned->first_seconds * 1e3, tuned->seconds * 1e3,
                tuned->call.c_str());
    std::fflush(stdout);  // a signal would end the command without it
  }
  USER_CHECK(
      !tuning.empty(), "device.backend = \"", backend.name,
      "\" has no algorithms to choose from, expected a backend with libraries, such as cuda");
  file.write(tuning_to_toml(tuning));
  file.commit();
  log_line(cat("wrote ", arguments.output, "; use it with --device.tuning=", arguments.output));
  return ExitCode::Done;
}

}  // namespace

void add_bench_tune(Command bench, const Finish& finish) {
  auto arguments = std::make_shared<TuneArguments>();
  Command command = bench.add_command(
      "tune",
      "find the library algorithms that run a training step fastest; set any key with "
      "--section.key=value");
  command.add_option("CONFIG", arguments->config, "config file, as for train").required();
  command.add_option("--output", arguments->output, "TOML file to write, for device.tuning")
      .show_default();
  command.add_option("--ranks", arguments->ranks, "ranks of the run; one of them is measured")
      .range(1, 1 << 20)
      .show_default();
  command.allow_overrides();
  command.on_run([=] { finish(run_tune(*arguments, command.overrides())); });
}

}  // namespace weft

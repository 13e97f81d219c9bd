// weft bench: the menu of benchmarks, and --calibrate.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/parallel.h"
#include "tools/commands.h"

namespace weft {

void add_bench_command(CLI::App& app, const Finish& finish) {
  CLI::App* command = app.add_subcommand("bench", "measure parts of Weft on this machine");
  command->require_subcommand(0, 1);
  auto calibrate = std::make_shared<CalibrateArguments>();
  auto wanted = std::make_shared<bool>(false);
  CLI::Option* flag = command->add_flag(
      "--calibrate", *wanted, "measure the device and the links between ranks into a device spec");
  command->add_option("--backend", calibrate->backend, "reference, cpu or cuda")
      ->needs(flag)
      ->capture_default_str();
  command->add_option("--threads", calibrate->threads, "threads of the CPU; 0: one per core")
      ->needs(flag)
      ->check(CLI::Range(int64_t{0}, kMaxThreads));
  command
      ->add_option("--ranks", calibrate->ranks,
                   "measure links between 2, 4 ... up to so many ranks; 0: 4, of GPUs none")
      ->needs(flag)
      ->check(CLI::Range(int64_t{0}, kMaxRanks));
  command->add_flag("--share-gpu", calibrate->share_gpu, "for tests: all ranks use GPU 0")
      ->needs(flag);
  command->add_option("--output", calibrate->output, "TOML file to write, for device.spec")
      ->needs(flag);
  command->callback([=] {
    if (!command->get_subcommands().empty()) return;
    USER_CHECK(
        *wanted,
        "command line: weft bench measures nothing by itself; name a benchmark, such as comm, "
        "or use --calibrate");
    check_backend_option(calibrate->backend);
    finish(run_calibrate(*calibrate));
  });
  add_bench_comm(*command, finish);
  add_bench_ops(*command, finish);
  add_bench_ranks(*command, finish);
  add_bench_tune(*command, finish);
}

}  // namespace weft

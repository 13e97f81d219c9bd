// weft bench: the menu of benchmarks, and --calibrate.
#include <memory>

#include "base/parallel.h"
#include "tools/commands.h"

namespace weft {

void add_bench_command(Command app, const Finish& finish) {
  Command command = app.add_command("bench", "measure parts of Weft on this machine");
  command.require_commands(0, 1);
  auto calibrate = std::make_shared<CalibrateArguments>();
  auto wanted = std::make_shared<bool>(false);
  Option flag = command.add_flag(
      "--calibrate", *wanted, "measure the device and the links between ranks into a device spec");
  command.add_option("--backend", calibrate->backend, "reference, cpu or cuda")
      .needs(flag)
      .show_default();
  command.add_option("--threads", calibrate->threads, "threads of the CPU; 0: one per core")
      .needs(flag)
      .range(0, kMaxThreads);
  command
      .add_option("--ranks", calibrate->ranks,
                  "measure links between 2, 4 ... up to this many ranks; 0: 4, or none for GPUs")
      .needs(flag)
      .range(0, kMaxRanks);
  command.add_flag("--share-gpu", calibrate->share_gpu, "for tests: all ranks use GPU 0")
      .needs(flag);
  command.add_option("--output", calibrate->output, "TOML file to write, for device.spec")
      .needs(flag);
  command.on_run([=] {
    if (command.names_command()) return;
    USER_CHECK(*wanted, "command line: weft bench needs a benchmark, such as comm, or --calibrate");
    check_backend_option(calibrate->backend);
    finish(run_calibrate(*calibrate));
  });
  add_bench_comm(command, finish);
  add_bench_ops(command, finish);
  add_bench_ranks(command, finish);
  add_bench_tune(command, finish);
}

}  // namespace weft

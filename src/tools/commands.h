// The subcommands of weft. Each adds itself to the command line and reports its exit code through
// `finish`; errors travel as exceptions to main.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "config/config.h"
#include "tools/command_line.h"

namespace weft {

// The most ranks that can be started on one machine.
inline constexpr int64_t kMaxRanks = 4096;

// Receives the exit code of a command.
using Finish = std::function<void(ExitCode)>;

void add_train_command(Command app, const Finish& finish);
void add_data_command(Command app, const Finish& finish);
void add_generate_command(Command app, const Finish& finish);
void add_eval_command(Command app, const Finish& finish);
void add_export_command(Command app, const Finish& finish);
void add_checkpoint_command(Command app, const Finish& finish);
void add_plan_command(Command app, const Finish& finish);
void add_opt_command(Command app, const Finish& finish);
void add_verify_command(Command app, const Finish& finish);
void add_compare_command(Command app, const Finish& finish);
void add_bench_command(Command app, const Finish& finish);

struct CalibrateArguments {
  std::string backend = "cpu";
  int64_t threads = 0;  // of a host device; 0: one per core
  int64_t ranks = 0;    // measure links up to this many; 0: 4, or none for GPUs
  bool share_gpu = false;
  std::string output;  // empty: print it
};

// weft bench --calibrate.
ExitCode run_calibrate(const CalibrateArguments& arguments);

// Each adds one benchmark to the subcommands of bench.
void add_bench_comm(Command bench, const Finish& finish);
void add_bench_ops(Command bench, const Finish& finish);
void add_bench_ranks(Command bench, const Finish& finish);
void add_bench_tune(Command bench, const Finish& finish);

// Throws UserError unless the value of --backend is a backend that computes.
void check_backend_option(const std::string& name);

}  // namespace weft

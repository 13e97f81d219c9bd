// The subcommands of weft. Each adds itself to the command line and tells, through `finish`,
// what its run ended with; errors travel as exceptions to main.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace weft {

// The most ranks that one machine starts.
inline constexpr int64_t kMaxRanks = 4096;

// Where a command puts its exit code.
using Finish = std::function<void(ExitCode)>;

void add_train_command(CLI::App& app, const Finish& finish);
void add_data_command(CLI::App& app, const Finish& finish);
void add_generate_command(CLI::App& app, const Finish& finish);
void add_plan_command(CLI::App& app, const Finish& finish);
void add_opt_command(CLI::App& app, const Finish& finish);
void add_verify_command(CLI::App& app, const Finish& finish);
void add_bench_command(CLI::App& app, const Finish& finish);

struct CalibrateArguments {
  std::string backend = "cpu";
  int64_t threads = 0;  // of a host device; 0: one per core
  int64_t ranks = 0;    // measures links up to so many; 0: 4, of GPUs none
  bool share_gpu = false;
  std::string output;  // empty: print it
};

// weft bench --calibrate.
ExitCode run_calibrate(const CalibrateArguments& arguments);

// Each adds one benchmark to the subcommands of bench.
void add_bench_comm(CLI::App& bench, const Finish& finish);
void add_bench_ops(CLI::App& bench, const Finish& finish);
void add_bench_ranks(CLI::App& bench, const Finish& finish);
void add_bench_tune(CLI::App& bench, const Finish& finish);

// The "--section.key=value" arguments that a command left over; throws UserError for any other.
std::vector<std::string> config_overrides(const CLI::App& command);

// Throws UserError unless the value of --backend names a backend that computes.
void check_backend_option(const std::string& name);

}  // namespace weft

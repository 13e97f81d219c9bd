// weft train CONFIG [--ranks N] [--resume[=STEP|DIR]] [--section.key=value ...]
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/machine.h"
#include "base/text.h"
#include "compile/compile.h"
#include "compile/validate_run.h"
#include "config/load.h"
#include "runtime/comm/join.h"
#include "runtime/comm/launcher.h"
#include "runtime/comm/threads.h"
#include "tools/commands.h"
#include "tools/launch_info.h"
#include "train/resume.h"
#include "train/run_folder.h"
#include "train/session.h"
#include "train/trainer.h"

namespace weft {

namespace {

struct TrainArguments {
  std::string config;
  int64_t ranks = 1;
  std::optional<LaunchInfo> launched;  // set: this process is one rank of a launcher's job
  std::string transport = "shm";
  TrainOptions options;
  int64_t max_restarts = 0;
};

ExitCode code_of(const TrainResult& result) {
  if (result.signal != 0) return stop_code(result.signal);
  return result.missing.empty() ? ExitCode::Done : ExitCode::CannotWrite;
}

ExitCode report(const TrainResult& result) {
  if (result.signal != 0) {
    log_line(cat("interrupted by ", signal_name(result.signal), " after step ", result.steps));
  }
  if (result.skipped > 0) {
    log_line(cat(result.skipped, " of ", result.steps,
                 " steps were skipped because the loss or a gradient was not finite"));
  }
  log_line(cat("wrote ", join(result.written, ", ")));
  if (!result.missing.empty()) std::fprintf(stderr, "weft: %s\n", result.missing.c_str());
  return code_of(result);
}

// One of several ranks: trains, and prints if it is the first.
ExitCode train_rank(const Config& config, Communicator& comm, const TrainOptions& options) {
  const TrainResult result = train(config, stop_request(), comm, options);
  return comm.rank() == 0 ? report(result) : code_of(result);
}

// Whether the error only reports that another rank has failed.
bool is_follow_up(const std::exception& error) {
  const auto* device = dynamic_cast<const DeviceError*>(&error);
  return device != nullptr &&
         (device->code() == ExitCode::PeerLost || device->code() == ExitCode::Hang);
}

// Ranks as threads of this process; the first error ends all of them and is thrown.
ExitCode train_threads(const Config& config, const Mesh& mesh, const TrainOptions& options) {
  const int64_t ranks = mesh.ranks();
  ThreadsJob job(ranks);
  std::vector<std::thread> threads;
  std::vector<ExitCode> codes(static_cast<size_t>(ranks), ExitCode::Done);
  std::mutex mutex;
  std::exception_ptr first_error;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<Communicator> comm = job.connect({mesh, rank}, comm_options(config));
      try {
        codes[static_cast<size_t>(rank)] = train_rank(config, *comm, options);
      } catch (const std::exception& error) {
        comm->abort(error.what());
        std::lock_guard lock(mutex);
        if (!first_error || !is_follow_up(error)) first_error = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
  return codes[0];
}

// The newest checkpoint of the run. The time tells it from one of the same step that it replaced.
struct NewestCheckpoint {
  int64_t step = -1;  // -1: none
  std::filesystem::file_time_type written = {};
  bool operator==(const NewestCheckpoint&) const = default;
};

NewestCheckpoint newest_checkpoint(const Config& config) {
  const std::vector<CommittedCheckpoint> saved =
      CheckpointFolder(checkpoint_path(config)).committed();
  if (saved.empty()) return {};
  std::error_code removed;
  return {saved.back().step,
          std::filesystem::last_write_time(cat(saved.back().path, "/", kManifestName), removed)};
}

// How to start again after a crash before the first new checkpoint: the same way. The folder was
// unused if it had to be, so what it holds by then is of the attempt that crashed.
TrainOptions repeated(const Config& config, TrainOptions options) {
  if (options.resume && Resume::asks_for_own(config, *options.resume)) return options;
  if (!options.overwrite) check_unused(config);
  options.overwrite = true;
  return options;
}

// Where a run with these options starts.
std::string start_of(const TrainOptions& options, const NewestCheckpoint& newest) {
  if (options.resume && parse_int(*options.resume)) return "step " + *options.resume;
  if (options.resume && *options.resume != kNewest) return *options.resume;
  return options.resume && newest.step >= 0 ? cat("step ", newest.step) : "the start";
}

// Whether starting again may help: a rank died or hung, rather than refused its input.
bool is_crash(ExitCode code) {
  return code == ExitCode::PeerLost || code == ExitCode::Hang || code == ExitCode::Internal;
}

// Ranks as processes. After a crash they are started again from the newest checkpoint of this run,
// as often as allowed; each new checkpoint resets the count.
ExitCode train_processes(const Config& config, const Mesh& mesh, const TrainArguments& arguments) {
  const LaunchOptions launch{.ranks = arguments.ranks, .ranks_finish_step = true, .report = {}};
  TrainOptions options = arguments.options;
  TrainOptions again = options;
  if (arguments.max_restarts > 0) again = repeated(config, options);
  for (int64_t restarts = 0;;) {
    const NewestCheckpoint before = newest_checkpoint(config);
    const auto code = static_cast<ExitCode>(launch_ranks(launch, [&](int64_t rank, ShmJob& job) {
      const std::unique_ptr<Communicator> comm =
          connect_devices(config, job.connect({mesh, rank}, comm_options(config)));
      return static_cast<int>(train_rank(config, *comm, options));
    }));
    if (!is_crash(code) || arguments.max_restarts == 0) return code;
    const NewestCheckpoint newest = newest_checkpoint(config);
    if (newest.step >= 0 && newest != before) {
      restarts = 0;
      again = {.resume = kNewest, .overwrite = false};
    }
    if (restarts == arguments.max_restarts) {
      throw UserError(ExitCode::CrashLoop,
                      cat(restarts + 1, " attempts failed without a new checkpoint; the newest is ",
                          newest.step < 0 ? "missing" : cat("step ", newest.step)));
    }
    ++restarts;
    options = again;
    log_line(cat("restart ", restarts, " of ", arguments.max_restarts, ": from ",
                 start_of(options, newest)));
  }
}

// This process as one of the ranks that a launcher has started.
ExitCode train_launched(const Config& config, const Mesh& mesh, const TrainArguments& arguments) {
  constexpr double kStartFactor = 6;  // processes start further apart than steps do
  catch_stop_signals_as_rank();
  const JoinOptions join{.job = arguments.launched->job,
                         .rank = arguments.launched->rank,
                         .ranks = arguments.ranks,
                         .start_seconds = kStartFactor * config.comm.timeout_seconds};
  return static_cast<ExitCode>(join_ranks(join, [&](int64_t rank, ShmJob& job) {
    const std::unique_ptr<Communicator> comm =
        connect_devices(config, job.connect({mesh, rank}, comm_options(config)));
    return static_cast<int>(train_rank(config, *comm, arguments.options));
  }));
}

void check_launched(const TrainArguments& arguments, const Command& command) {
  const LaunchInfo& info = *arguments.launched;
  USER_CHECK(!command.has("--ranks"), "command line: --ranks=", arguments.ranks, ", but ",
             info.launcher, " started the ", info.ranks,
             " ranks; leave --ranks out, or start weft without ", info.launcher);
  USER_CHECK(arguments.transport == "shm", "command line: --transport=", arguments.transport,
             " under ", info.launcher, ", expected shm: the ranks are processes");
  USER_CHECK(arguments.max_restarts == 0, "command line: --max-restarts=", arguments.max_restarts,
             " under ", info.launcher, ", expected 0: only ", info.launcher,
             " can start its ranks again, with --resume");
  USER_CHECK(info.local_ranks == info.ranks, "environment: ", info.launcher, " started ",
             info.ranks, " ranks, ", info.local_ranks,
             " of them on this host, expected all on one host: ranks of several hosts have no "
             "connection");
}

ExitCode run_train(const TrainArguments& arguments, const std::vector<std::string>& overrides) {
  const Config config = load_config(arguments.config, overrides);
  validate_run(config, arguments.ranks);
  const bool threads = arguments.transport == "threads";
  USER_CHECK(arguments.max_restarts == 0 || !threads,
             "command line: --max-restarts=", arguments.max_restarts,
             " with --transport=threads, expected shm: a crash ends all "
             "ranks of a process");
  const Mesh mesh = mesh_of(config, arguments.ranks);
  if (mesh.axes.empty() && arguments.max_restarts == 0) {
    catch_stop_signals();
    return report(train(config, stop_request(), single_rank(), arguments.options));
  }
  const bool speaks = !arguments.launched || arguments.launched->rank == 0;
  const int64_t cores = usable_cores();
  if (arguments.ranks > cores && speaks) {
    log_line(cat(arguments.ranks, " ranks on ", cores, " cores: ranks share cores"));
  }
  USER_CHECK(!threads || find_backend(config.device.backend).connect == nullptr,
             "command line: --transport=", arguments.transport, " with device.backend = \"",
             config.device.backend, "\", expected shm: each GPU needs its own process");
  if (config.device.share_gpu && speaks) {
    log_line(cat("device.share_gpu: ", arguments.ranks,
                 " ranks share GPU 0 and exchange data through sockets, each with its own "
                 "NCCL_HOSTID; this is for tests"));
  }
  if (threads) {
    catch_stop_signals();
    return train_threads(config, mesh, arguments.options);
  }
  if (arguments.launched) return train_launched(config, mesh, arguments);
  return train_processes(config, mesh, arguments);
}

// Until the ranks of a launcher have found each other, all of them fail alike, and rank 0 says why,
// unless it is missing.
ExitCode run_launched(TrainArguments arguments, const Command& command) {
  try {
    check_launched(arguments, command);
    arguments.ranks = arguments.launched->ranks;
    return run_train(arguments, command.overrides("--resume"));
  } catch (...) {
    const ExitCode code = current_failure().code;
    if (arguments.launched->rank == 0 || code == ExitCode::PeerLost) throw;
    return code;
  }
}

}  // namespace

void add_train_command(Command app, const Finish& finish) {
  auto arguments = std::make_shared<TrainArguments>();
  Command command = app.add_command(
      "train", "train a model from a TOML config; set any key with --section.key=value");
  command.add_option("CONFIG", arguments->config, "config file; docs/config.md lists every key")
      .required();
  command
      .add_option("--ranks", arguments->ranks,
                  "ranks to start on this machine; under mpirun, srun or torchrun leave it out")
      .range(1, kMaxRanks)
      .show_default();
  command
      .add_option("--transport", arguments->transport,
                  "shm: a process per rank; threads: all in one process")
      .one_of({"shm", "threads"})
      .show_default();
  command.add_flag("--resume", arguments->options.resume, kNewest,
                   "continue from the newest checkpoint of the run, or from --resume=STEP or "
                   "--resume=DIR; without a checkpoint, start at step 0");
  command.add_flag("--overwrite", arguments->options.overwrite,
                   "replace the result of an earlier run in the folder");
  command
      .add_option("--max-restarts", arguments->max_restarts,
                  "start again from the newest checkpoint after a rank died, at most this often; "
                  "each new checkpoint resets the count")
      .range(0, 1'000'000)
      .show_default();
  command.allow_overrides();
  command.on_run([=] {
    arguments->launched = read_launch_info();
    finish(arguments->launched ? run_launched(*arguments, command)
                               : run_train(*arguments, command.overrides("--resume")));
  });
}

}  // namespace weft

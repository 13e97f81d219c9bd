// weft bench ranks CONFIG: one training step on ranks with one core each, compared with one process
// with the same number of threads on the same work. The variants alternate in separate processes;
// reported are each variant's fastest step and the processor time of all its processes.
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/stop.h"
#include "base/text.h"
#include "compile/validate_run.h"
#include "config/derived.h"
#include "config/load.h"
#include "data/loader.h"
#include "runtime/comm/launcher.h"
#include "tools/commands.h"
#include "tools/shared_value.h"
#include "train/session.h"
#include "train/training_data.h"

namespace weft {
namespace {

struct RanksBench {
  std::string config;
  int64_t ranks = 2;
  int64_t steps = 3;
  int64_t repeats = 3;
};

constexpr int64_t kMaxBenchRanks = 64;

// Results that the processes of one run leave for the one that prints.
struct Board {
  double step_seconds = 0;                        // rank 0's fastest
  double processor_seconds[kMaxBenchRanks] = {};  // of each rank, per step
  int64_t rank_bytes = 0;
};

struct Result {
  std::string name;
  Config config;
  int64_t ranks = 1;
  double step_seconds = 1e30;
  double processor_seconds = 1e30;
  int64_t rank_bytes = 0;
};

// Pins this process to one of the cores it may use.
void pin(int64_t rank) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int64_t left = rank % std::max(1, CPU_COUNT(&allowed));
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Trains on synthetic tokens: one warmup step, then the measured ones.
void run_steps(const Config& config, Communicator& comm, int64_t steps, Board& board) {
  Session session(config,
                  compile(config, {.data_vocab = data_vocabulary(config), .ranks = comm.ranks()}),
                  comm);
  session.initialize(1);
  const TokenSource source = TokenSource::synthetic(session.compiled().spec.vocab_size);
  const int64_t count = config.training.local_batch_size, seq_len = config.training.seq_len;
  const auto run_step = [&](int64_t step) {
    session.train_step({.step = step, .seed = 1, .lr = 1e-4}, [&](int64_t first, Batch& batch) {
      fill_batch(
          source,
          {.seed = 1, .step = step, .first_sample = first, .count = count, .seq_len = seq_len},
          batch);
    });
  };
  run_step(0);
  const double used = processor_seconds();
  double best = 1e30;
  for (int64_t step = 1; step <= steps; ++step) {
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    run_step(step);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  board.processor_seconds[comm.rank()] = (processor_seconds() - used) / static_cast<double>(steps);
  if (comm.rank() != 0) return;
  board.step_seconds = best;
  board.rank_bytes = rank_bytes(session.compiled().plan);
}

// The exit code of the ranks, which have already reported any error.
ExitCode run_once(Result& result, int64_t steps, Board& board) {
  board = {};
  const Mesh mesh = mesh_of(result.config, result.ranks);
  const int code =
      launch_ranks({.ranks = result.ranks, .report = {}}, [&](int64_t rank, ShmJob& job) {
        if (result.ranks == 1) {
          run_steps(result.config, single_rank(), steps, board);
          return 0;
        }
        pin(rank);
        const auto comm = job.connect({mesh, rank}, comm_options(result.config));
        run_steps(result.config, *comm, steps, board);
        return 0;
      });
  if (code != 0) return static_cast<ExitCode>(code);
  double used = 0;
  for (int64_t rank = 0; rank < result.ranks; ++rank) used += board.processor_seconds[rank];
  result.step_seconds = std::min(result.step_seconds, board.step_seconds);
  result.processor_seconds = std::min(result.processor_seconds, used);
  result.rank_bytes = board.rank_bytes;
  return ExitCode::Done;
}

void print(const Result& result, const Result& first) {
  const double tokens = static_cast<double>(
      global_batch_size(result.config, degrees_of(result.config, result.ranks)) *
      result.config.training.seq_len);
  std::printf(
      "%-26s step %9.3f ms  %8.0f tok/s  %5.2f of the first  processor %9.3f ms  %s per rank\n",
      result.name.c_str(), result.step_seconds * 1e3, tokens / result.step_seconds,
      first.step_seconds / result.step_seconds, result.processor_seconds * 1e3,
      human_bytes(static_cast<double>(result.rank_bytes)).c_str());
}

// One process with the work of all ranks, the ranks, and ranks that gather into private memory.
std::vector<Result> variants(const RanksBench& bench, Config config) {
  config.device.threads = 1;
  Config copies = config;
  copies.compile.shared_gather = false;
  Config one = config;
  one.device.threads = bench.ranks;
  one.parallelism = {};
  // An elastic step has the same micro-batches on any number of ranks.
  const Degrees degrees = degrees_of(config, bench.ranks);
  if (!is_elastic(config)) one.training.local_batch_size *= degrees.batch_ranks();
  return {
      {.name = cat("1 process, ", bench.ranks, " threads"), .config = one},
      {.name = cat(bench.ranks, " ranks"), .config = config, .ranks = bench.ranks},
      {.name = cat(bench.ranks, " ranks, a copy each"), .config = copies, .ranks = bench.ranks}};
}

ExitCode run_ranks(const RanksBench& bench, const std::vector<std::string>& overrides) {
  end_on_stop_signals();
  const Config config = load_config(bench.config, overrides);
  validate_run(config, bench.ranks);
  USER_CHECK(find_backend(config.device.backend).connect == nullptr,
             "bench ranks: each rank gets a core, found device.backend = \"", config.device.backend,
             "\", expected \"cpu\"; make gpu-bench measures GPUs");
  USER_CHECK(
      config.device.threads == 0, describe_key(config, "device.threads"),
      " has no effect: each rank gets one thread, the single process one per rank; remove the key");
  const SharedValue<Board> board;
  std::vector<Result> results = variants(bench, config);
  for (int64_t i = 0; i < bench.repeats; ++i) {
    for (Result& result : results) {
      const ExitCode code = run_once(result, bench.steps, *board);
      if (code != ExitCode::Done) return code;
    }
  }
  for (const Result& result : results) print(result, results.front());
  return ExitCode::Done;
}

}  // namespace

void add_bench_ranks(Command bench, const Finish& finish) {
  auto arguments = std::make_shared<RanksBench>();
  Command command = bench.add_command(
      "ranks", "compare a training step on ranks, one core each, with one process with threads");
  command.add_option("CONFIG", arguments->config, "config file, as for train").required();
  command.add_option("--ranks", arguments->ranks, "ranks, and threads of the single process")
      .range(2, kMaxBenchRanks)
      .show_default();
  command.add_option("--steps", arguments->steps, "steps per run, after one warmup step")
      .range(1, 10000)
      .show_default();
  command.add_option("--repeats", arguments->repeats, "runs of each variant, alternating")
      .range(1, 10000)
      .show_default();
  command.allow_overrides();
  command.on_run([=] { finish(run_ranks(*arguments, command.overrides())); });
}

}  // namespace weft

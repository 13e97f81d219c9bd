// Overlap on a slow link. It measures time, so it runs alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/file.h"
#include "compile/config_choices.h"
#include "config/load.h"
#include "config/validate.h"
#include "ranks/modes.h"
#include "ranks/ranks.h"
#include "runtime/cpu/device.h"
#include "runtime/executor.h"
#include "support/short_run.h"
#include "train/session.h"

namespace weft {
namespace {

struct TimedRun {
  ShortRun run;
  double seconds = 0;
};

TimedRun timed_run(const PreparedRun& prepared, int64_t steps) {
  const auto start = std::chrono::steady_clock::now();
  TimedRun timed{.run = short_run_on_ranks(prepared, steps)};
  timed.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return timed;
}

// On a link that takes about as long as the computation, overlap hides much of it.
TEST(SlowLink, OverlapHidesASlowLink) {
  constexpr int64_t kSteps = 10;  // enough to make start-up negligible
  constexpr int kTurns = 3;       // the best counts: other programs may take the cores for a while
  // Large enough that the link dominates, not the scheduling of six threads on two cores.
  const Overrides model = {"--model.name=gpt2", "--model.n_layers=6", "--model.dim=128",
                           "--training.local_batch_size=12", "--training.seq_len=64"};
  const PreparedRun free = prepare_run(2, model);
  TimedRun computing = timed_run(free, kSteps);
  for (int turn = 1; turn < kTurns; ++turn) {
    computing.seconds = std::min(computing.seconds, timed_run(free, kSteps).seconds);
  }
  // Each step gathers the weights twice and reduces the gradients once, half of the bytes each
  // time.
  const double bytes = 6.0 * static_cast<double>(computing.run.params.size());
  const double bandwidth = bytes * static_cast<double>(kSteps) / computing.seconds;
  const Overrides slow = with(model, {"--comm.link_bandwidth=" + std::to_string(bandwidth)});
  const PreparedRun hidden = prepare_run(2, slow);
  const PreparedRun exposed = prepare_run(2, with(slow, {"--compile.overlap=false"}));
  double on = std::numeric_limits<double>::infinity();
  double off = on;
  for (int turn = 0; turn < kTurns; ++turn) {
    const TimedRun with_overlap = timed_run(hidden, kSteps);
    const TimedRun without = timed_run(exposed, kSteps);
    EXPECT_EQ(with_overlap.run, computing.run);
    EXPECT_EQ(without.run, computing.run);
    on = std::min(on, with_overlap.seconds);
    off = std::min(off, without.seconds);
  }
  // If hidden completely, a step would take half the time.
  EXPECT_LT(on, 0.85 * off) << "without a link: " << computing.seconds << " s";
}

// Takes the time that the plan predicts, independent of the machine: what remains to be measured is
// how the streams overlap. The next long kernel compensates for short ones, so that wake-up latency
// does not count.
void pretend_to_compute(const Launch& launch) {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point busy_until;
  busy_until =
      std::max(busy_until, Clock::now()) +
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(launch.seconds));
  if (busy_until - Clock::now() > std::chrono::milliseconds(2)) {
    std::this_thread::sleep_until(busy_until);
  }
}

// The kernels of the CPU: real collectives, while the others only pretend to compute.
std::vector<Kernel> pretending_kernels() {
  const std::span<const Kernel> table = find_backend("cpu").kernels();
  std::vector<Kernel> kernels(table.begin(), table.end());
  for (Kernel& kernel : kernels) {
    if (!find_op(kernel.op)->traits.collective) kernel.launch = pretend_to_compute;
  }
  return kernels;
}

// Compiled for a machine that computes for `compute` seconds per step, and whose link is busy for
// `link` seconds.
struct Times {
  double compute = 0;
  double link = 0;
};

class SlowMachine {
 public:
  SlowMachine(const Overrides& model, const Times& times)
      : file_(std::filesystem::path(testing::TempDir()) / "slow_machine.toml"), model_(model) {
    spec_ = load_device_spec({}, "cpu");
    spec_.launch_latency = 0;
    set_link(1e9);
    const PlanTime estimate = compile_with({}).estimate;
    for (double* rate : {&spec_.matmul_flops_f32, &spec_.matmul_flops_bf16, &spec_.vector_flops,
                         &spec_.memory_bandwidth}) {
      *rate *= estimate.compute_seconds / times.compute;
    }
    set_link(bandwidth_ * estimate.collective_seconds / times.link);
  }
  ~SlowMachine() { std::filesystem::remove(file_); }

  Compiled compile_with(const Overrides& more) {
    write_text_file(file_, device_spec_to_toml(spec_));
    const Config config = make_config(with(model_, more));
    return compile(config, {.data_vocab = 0, .ranks = kRanks});
  }

  // Seconds per step, the fastest of a few, on ranks that are threads.
  double measure(const Compiled& compiled) const {
    const std::vector<Kernel> kernels = pretending_kernels();
    double best = 1e9;
    RanksOptions options;
    options.comm.delay = {.bytes_per_second = bandwidth_};
    const auto errors =
        run_ranks(compiled.plan.mesh, options, [&](Communicator& comm, Device& device) {
          Executor executor(compiled.plan, device, kernels, comm);
          for (int i = 0; i < 2; ++i) {
            comm.barrier();
            const auto start = std::chrono::steady_clock::now();
            executor.run(ProgramKind::Last);
            comm.barrier();
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
            if (comm.rank() == 0) best = std::min(best, took.count());
          }
        });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    return best;
  }

 private:
  static constexpr int64_t kRanks = 2;

  Config make_config(const Overrides& overrides) const {
    Config config = parse_config("", "test", with(overrides, {"--device.spec=" + file_.string()}));
    validate(config, kRanks, config_choices());
    return config;
  }

  // A rank sends half of what is gathered, and all of what is summed.
  void set_link(double bytes_per_second) {
    bandwidth_ = bytes_per_second;
    spec_.links = {{.hosts = 1,
                    .ranks = kRanks,
                    .gather_latency = 0,
                    .gather_bandwidth = 2 * bytes_per_second,
                    .scatter_latency = 0,
                    .scatter_bandwidth = 2 * bytes_per_second,
                    .sum_latency = 0,
                    .sum_bandwidth = bytes_per_second}};
  }

  std::filesystem::path file_;
  Overrides model_;
  DeviceSpec spec_;
  double bandwidth_ = 0;
};

TEST(SlowLink, OverlapGainsWhatTheCostModelPredicts) {
  const Overrides model = {"--model.name=gpt2", "--model.n_layers=4", "--model.dim=64",
                           "--training.local_batch_size=2", "--training.seq_len=32"};
  SlowMachine machine(model, {.compute = 0.5, .link = 0.4});
  const Compiled on = machine.compile_with({});
  const Compiled off = machine.compile_with({"--compile.overlap=false"});
  const double predicted = off.estimate.seconds - on.estimate.seconds;
  EXPECT_GT(predicted, 0.2);
  // Other load only makes a step longer.
  double with_overlap = 1e9, without = 1e9;
  for (int round = 0; round < 5; ++round) {
    with_overlap = std::min(with_overlap, machine.measure(on));
    without = std::min(without, machine.measure(off));
    if (std::abs((without - with_overlap) / predicted - 1) < 0.2) break;
  }
  // A fifth, for the overhead of queues and events.
  EXPECT_NEAR((without - with_overlap) / predicted, 1, 0.2)
      << "with overlap " << with_overlap << " s, predicted " << on.estimate.seconds << "; without "
      << without << " s, predicted " << off.estimate.seconds;
}

// Without chunks, the matmuls before and after a transfer wait for it.
TEST(SlowLink, ChunksGainWhatTheCostModelPredicts) {
  const Overrides model = {"--model.name=gpt2",      "--model.n_layers=1",
                           "--model.dim=1024",       "--model.n_heads=4",
                           "--model.vocab_size=256", "--training.local_batch_size=16",
                           "--training.seq_len=64",  "--parallelism.tensor_parallel_degree=2"};
  // Slow enough that waking the threads of a hundred more kernels does not count.
  SlowMachine machine(model, {.compute = 2, .link = 1.6});
  const Compiled on = machine.compile_with({});
  const Compiled off = machine.compile_with({"--parallelism.enable_async_tensor_parallel=false"});
  const double predicted = off.estimate.seconds - on.estimate.seconds;
  EXPECT_GT(predicted, 0.3);
  double chunked = 1e9, unchunked = 1e9;
  for (int round = 0; round < 5; ++round) {
    chunked = std::min(chunked, machine.measure(on));
    unchunked = std::min(unchunked, machine.measure(off));
    if (std::abs((unchunked - chunked) / predicted - 1) < 0.2) break;
  }
  EXPECT_NEAR((unchunked - chunked) / predicted, 1, 0.2)
      << "in chunks " << chunked << " s, predicted " << on.estimate.seconds << "; without "
      << unchunked << " s, predicted " << off.estimate.seconds;
}

}  // namespace
}  // namespace weft

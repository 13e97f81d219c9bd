// weft bench comm: collectives between processes of this machine, compared with concurrent plain
// copies of the same bytes. The ratios matter; both sides alternate within one run.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "base/stop.h"
#include "runtime/comm/launcher.h"
#include "runtime/cpu/device.h"
#include "tools/commands.h"

namespace weft {
namespace {

constexpr int64_t kMiB = 1 << 20;

struct CommBench {
  std::vector<int64_t> ranks = {2, 4};
  std::vector<int64_t> mebibytes = {1, 16, 128};
  int64_t repeats = 20;
};

// The best of several runs: seconds between barriers, and processor seconds of this rank.
struct Best {
  double seconds = 1e30;
  double processor = 1e30;
};

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Runs two actions alternately: other load on the machine slows down both, and at times neither.
template <class First, class Second>
std::pair<Best, Best> best_of(Communicator& comm, int64_t repeats, const First& first,
                              const Second& second) {
  const auto time = [&](const auto& action, Best& best) {
    comm.barrier();
    const int64_t start = monotonic_ns();
    const double used = processor_seconds();
    action();
    best.processor = std::min(best.processor, processor_seconds() - used);
    comm.barrier();
    best.seconds = std::min(best.seconds, static_cast<double>(monotonic_ns() - start) * 1e-9);
  };
  std::pair<Best, Best> best;
  for (int64_t i = 0; i <= repeats; ++i) {
    time(first, best.first);
    time(second, best.second);
  }
  return best;
}

// One rank's part; rank 0 prints a line per collective.
void measure(Communicator& comm, int64_t bytes, int64_t repeats) {
  HostDevice device(1);
  const int64_t n = comm.ranks(), elements = bytes / 4;
  const int64_t shard_size = flat_padded(elements / n);
  auto* memory = static_cast<float*>(comm.allocate((elements + shard_size) * 4, device));
  auto* shared = static_cast<float*>(comm.allocate_shared("dp", shard_size * n * 4, device));
  std::memset(memory, 0, static_cast<size_t>(elements + shard_size) * 4);
  const Tensor full{memory, DType::F32, {elements}};
  const Tensor together{shared, DType::F32, {elements}};
  const Tensor shard{memory + elements, DType::F32, {shard_size}};
  const auto received = static_cast<size_t>(bytes / n * (n - 1));
  std::vector<char> from(received, 1), to(received, 1);
  const auto report = [&](const char* name, const auto& action) {
    const auto [plain, taken] = best_of(
        comm, repeats, [&] { std::memcpy(to.data(), from.data(), received); }, action);
    if (comm.rank() != 0) return;
    std::printf(
        "%-22s %2lld ranks %4lld MiB  %9.3f ms  %6.2f GB/s per rank  %4.2f of memcpy, %4.2f by "
        "processor time\n",
        name, static_cast<long long>(n), static_cast<long long>(bytes / kMiB), taken.seconds * 1e3,
        static_cast<double>(received) / taken.seconds * 1e-9, plain.seconds / taken.seconds,
        plain.processor / taken.processor);
    std::fflush(stdout);
  };
  report("all_gather", [&] { comm.all_gather({"dp", 0}, shard, {&full, 1}); });
  report("all_gather shared", [&] { comm.all_gather({"dp", 0}, shard, {&together, 1}); });
  report("reduce_scatter", [&] { comm.reduce_scatter({"dp", 0}, {&full, 1}, shard); });
  comm.release(shared, device);
  comm.release(memory, device);
}

ExitCode run_comm(const CommBench& bench) {
  end_on_stop_signals();
  for (const int64_t ranks : bench.ranks) {
    const int code = launch_ranks({.ranks = ranks, .report = {}}, [&](int64_t rank, ShmJob& job) {
      Mesh mesh;
      mesh.axes = {{"dp", ranks}};
      const auto comm = job.connect({mesh, rank});
      for (const int64_t size : bench.mebibytes) {
        // Short runs are disturbed more often, and are cheaper to repeat.
        const int64_t repeats = bench.repeats * std::max<int64_t>(1, 32 / size);
        measure(*comm, size * kMiB, repeats);
      }
      return 0;
    });
    if (code != 0) return static_cast<ExitCode>(code);
  }
  return ExitCode::Done;
}

}  // namespace

void add_bench_comm(Command bench, const Finish& finish) {
  auto arguments = std::make_shared<CommBench>();
  Command comm = bench.add_command(
      "comm", "compare collectives between processes with plain copies of the same bytes");
  comm.add_option("--ranks", arguments->ranks, "numbers of ranks")
      .comma_separated()
      .range(2, kMaxRanks);
  comm.add_option("--mib", arguments->mebibytes, "sizes of the full tensor in MiB")
      .comma_separated()
      .range(1, 1 << 16);
  comm.add_option("--repeats", arguments->repeats,
                  "runs, of which the best counts; more for small sizes")
      .range(1, 10000);
  comm.on_run([=] { finish(run_comm(*arguments)); });
}

}  // namespace weft

// weft bench --calibrate: measures this machine into a device spec, a TOML file for device.spec.
// Links are measured between processes, started as by weft train --ranks.
#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/stop.h"
#include "compile/compile.h"
#include "graph/clocks.h"
#include "graph/flat.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/samples.h"
#include "runtime/comm/launcher.h"
#include "runtime/kernel_timer.h"
#include "tools/calibrate.h"
#include "tools/commands.h"
#include "tools/shared_value.h"

namespace weft {
namespace {

constexpr std::string_view kAxis = names::kShardAxis;
constexpr int64_t kSizes[] = {1 << 16, 1 << 19, 1 << 22, 1 << 25};  // bytes of the full tensor
constexpr int kCollectives = 3;
constexpr int kRows = 4;

// What rank 0 measures for its parent process.
struct Measured {
  double seconds[kCollectives][std::size(kSizes)];
  int64_t collectives_bytes;  // 0: uses no device memory
};

// Best seconds of one collective, measured in sequences; ranks start each sequence together.
double time_collective(Communicator& comm, Stream& stream, const Kernel& kernel,
                       const Launch& launch, int64_t count) {
  double best = 0;
  for (int row = 0; row < kRows; ++row) {
    comm.barrier();
    const int64_t start = monotonic_ns();
    for (int64_t i = 0; i < count; ++i) stream.launch(kernel, launch);
    stream.synchronize();
    const double taken = static_cast<double>(monotonic_ns() - start) * 1e-9;
    const double each = taken / static_cast<double>(count);
    best = row == 0 ? each : std::min(best, each);
  }
  return best;
}

bool gathers_into_shared(const Backend& backend) {
  const std::span<const Kernel> kernels = backend.kernels();
  return std::any_of(kernels.begin(), kernels.end(),
                     [](const Kernel& kernel) { return kernel.shared_results; });
}

// One rank's part in measuring the collectives of one size.
void measure_size(const Backend& backend, Device& device, Communicator& comm, size_t size,
                  Measured& measured) {
  const int64_t n = comm.ranks();
  const int64_t elements = kSizes[size] / 4;
  const int64_t shard_size = flat_padded(elements / n);
  const auto stream = device.make_stream(stream_name(StreamId::Gather));
  auto* memory = static_cast<float*>(comm.allocate((shard_size * n + shard_size) * 4, device));
  stream->zero(memory, (shard_size * n + shard_size) * 4);
  const Tensor full{memory, DType::F32, {elements}};
  const Tensor shard{memory + shard_size * n, DType::F32, {shard_size}};
  // Gathered weights are placed as in a plan: in memory shared by the ranks, if supported.
  const bool shares = gathers_into_shared(backend);
  void* shared = shares ? comm.allocate_shared(kAxis, shard_size * n * 4, device) : memory;
  const Tensor gathered{shared, DType::F32, {elements}};
  const std::string full_type = cat("f32[", elements, "]"), axis = cat("axis=\"", kAxis, "\"");
  struct Case {
    Call call;
    std::vector<Tensor> operands;
    std::vector<Tensor> results;
  };
  const std::string flat = cat("f32[", shard_size * n, "] @F(", kAxis, ")");
  const std::string partial = cat(full_type, " @P(", kAxis, ")");
  const Case cases[kCollectives] = {
      {parse_samples(kAllGather, cat("x: ", flat, "; ", axis, ", types=[\"", full_type, "\"]"))
           .front(),
       {shard},
       {gathered}},
      {parse_samples(kReduceScatter, cat("g: ", partial, "; ", axis)).front(), {full}, {shard}},
      {parse_samples(kAllReduce, cat("x: ", partial, "; ", axis)).front(), {full}, {full}},
  };
  const int64_t count = std::clamp<int64_t>((int64_t{64} << 20) / kSizes[size], 2, 64);
  for (size_t i = 0; i < kCollectives; ++i) {
    const Kernel& kernel = choose_kernel(backend.kernels(), cases[i].call, backend.name, "link");
    Launch launch;
    launch.call = &cases[i].call;
    launch.operands = cases[i].operands;
    launch.results = cases[i].results;
    launch.stream = stream.get();
    launch.comm = &comm;
    launch.channel = index_of(i == 0 ? StreamId::Gather : StreamId::Reduce);
    prepare(kernel, launch);
    const double seconds = time_collective(comm, *stream, kernel, launch, count);
    if (comm.rank() == 0) measured.seconds[i][size] = seconds;
  }
  if (shares) comm.release(shared, device);
  comm.release(memory, device);
}

bool has_collectives(const Backend& backend) {
  const std::span<const Kernel> kernels = backend.kernels();
  return std::any_of(kernels.begin(), kernels.end(),
                     [](const Kernel& kernel) { return kernel.op == kAllGather.name(); });
}

LatencyBandwidth fit(const Measured& measured, size_t collective) {
  std::vector<Timed> times;
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    times.push_back({static_cast<double>(kSizes[i]), measured.seconds[collective][i]});
  }
  return fit_link(times);
}

struct MeasuredLink {
  ExitCode code = ExitCode::Done;  // of the ranks, which have already reported the error
  Link link = {};
  int64_t collectives_bytes = 0;
};

MeasuredLink measure_link(const Backend& backend, int64_t ranks, bool share_gpu) {
  const SharedValue<Measured> shared;
  const int64_t threads = usable_cores() / ranks;
  const int code = launch_ranks({.ranks = ranks, .report = {}}, [&](int64_t rank, ShmJob& job) {
    Mesh mesh;
    mesh.axes = {{std::string(kAxis), ranks}};
    auto comm = job.connect({mesh, rank});
    if (backend.connect != nullptr) {
      comm = backend.connect(std::move(comm), {.share_device = share_gpu});
    }
    const auto device = backend.make_device({.threads = std::max<int64_t>(1, threads),
                                             .index = share_gpu ? 0 : rank,
                                             .needed = share_gpu ? 1 : ranks});
    device->set_watch([&](int64_t since) { comm->watch({.waiting_since = since}); });
    comm->barrier();
    const std::optional<int64_t> free = device->free_bytes();
    comm->barrier();
    const std::string axis(kAxis);
    // As in a plan, where gathers and reductions each have their own stream and communicator.
    comm->make_groups(std::vector<CollectiveGroup>{{axis, index_of(StreamId::Gather)},
                                                   {axis, index_of(StreamId::Reduce)}});
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      measure_size(backend, *device, *comm, i, *shared);
    }
    comm->barrier();
    if (rank == 0 && free) {
      shared->collectives_bytes = (*free - *device->free_bytes()) / (share_gpu ? ranks : 1);
    }
    comm->barrier();
    device->set_watch({});
    return 0;
  });
  if (code != 0) return {.code = static_cast<ExitCode>(code), .link = {}};
  const LatencyBandwidth gather = fit(*shared, 0), scatter = fit(*shared, 1), sum = fit(*shared, 2);
  return {.code = ExitCode::Done,
          .link = {.hosts = 1,
                   .ranks = ranks,
                   .gather_latency = gather.latency,
                   .gather_bandwidth = gather.bandwidth,
                   .scatter_latency = scatter.latency,
                   .scatter_bandwidth = scatter.bandwidth,
                   .sum_latency = sum.latency,
                   .sum_bandwidth = sum.bandwidth},
          .collectives_bytes = shared->collectives_bytes};
}

// Every command-line option must have an effect.
void check_effects(const CalibrateArguments& arguments, const Backend& backend, int64_t ranks) {
  const bool shares = backend.connect != nullptr && ranks > 1;
  USER_CHECK(!arguments.share_gpu || shares,
             "command line: --share-gpu is for several ranks on one GPU, found --backend ",
             backend.name, " with --ranks ", ranks,
             "; leave it out or give --backend cuda and at "
             "least 2 ranks");
  USER_CHECK(arguments.threads == 0 || backend.connect == nullptr, "command line: --threads ",
             arguments.threads, " has no effect with --backend ", backend.name, "; leave it out");
}

}  // namespace

ExitCode run_calibrate(const CalibrateArguments& arguments) {
  end_on_stop_signals();
  Config config;
  config.device.backend = arguments.backend;
  const Backend& backend = find_backend(arguments.backend);
  DeviceSpec spec = device_spec_of(config);
  const int64_t most = arguments.ranks > 0 ? arguments.ranks : backend.connect == nullptr ? 4 : 1;
  check_effects(arguments, backend, most);
  // Whether the file can be written is checked before measuring.
  if (!arguments.output.empty()) OutputFile probe(arguments.output);
  // Ranks are forked before this process opens a device.
  if (has_collectives(backend) && most > 1) {
    spec.links.clear();
    for (int64_t ranks = 2; ranks <= most; ranks *= 2) {
      const MeasuredLink measured = measure_link(backend, ranks, arguments.share_gpu);
      if (measured.code != ExitCode::Done) return measured.code;
      spec.links.push_back(measured.link);
      spec.collectives_bytes = measured.collectives_bytes;
      if (!arguments.output.empty()) log_line(cat("link: ", to_string(spec.links.back())));
    }
  }
  const auto device = backend.make_device({.threads = arguments.threads});
  spec = calibrate(backend, *device, std::move(spec));
  const std::string text = device_spec_to_toml(spec);
  if (arguments.output.empty()) {
    log_line(text);
    return ExitCode::Done;
  }
  write_text_file(arguments.output, text);
  log_line(cat("wrote ", arguments.output, "; use it with --device.spec=", arguments.output));
  return ExitCode::Done;
}

}  // namespace weft

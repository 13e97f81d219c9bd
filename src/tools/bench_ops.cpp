// weft bench ops CONFIG: the time of every step of a plan compared with its roofline, the time that
// the rates of the device spec allow. Similar steps share a line; a line above its roofline is
// flagged with the reason. Works on any backend: it knows steps, not ops.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "base/stop.h"
#include "compile/validate_run.h"
#include "config/derived.h"
#include "config/load.h"
#include "data/loader.h"
#include "graph/cost.h"
#include "tools/commands.h"
#include "train/session.h"
#include "train/training_data.h"

namespace weft {
namespace {

struct OpsArguments {
  std::string config;
  int64_t repeats = 5;
};

// Steps with the same op, kernel, phase and types.
struct Line {
  std::string what;
  int64_t calls = 0;
  double seconds = 0;
  double roofline = 0;
  double flops = 0;
  double bytes = 0;
  // The part from steps whose data does not fit any cache, or whose operations take longer than
  // their data.
  double memory_seconds = 0;
  double memory_roofline = 0;

  bool above_roofline() const { return roofline > seconds; }
  // ' ', or why it is above the roofline: '*' a cache, '+' rates above those of the device spec.
  char mark() const {
    if (!above_roofline()) return ' ';
    return memory_roofline > memory_seconds ? '+' : '*';
  }
};

std::string types_text(const std::vector<TensorRef>& refs) {
  std::string text;
  for (const TensorRef& ref : refs) {
    if (ref.shape.empty()) continue;
    text += cat(text.empty() ? "" : ", ", to_string(TensorType{ref.dtype, ref.shape, {}}));
  }
  constexpr size_t kWidth = 60;
  return text.size() > kWidth ? text.substr(0, kWidth - 3) + "..." : text;
}

// The inputs of a roofline.
struct Rates {
  const DeviceSpec& spec;
  int64_t cache_bytes = 0;  // 0: unknown
};

Line line_of(const Step& step, double seconds, const Rates& rates) {
  Line line;
  line.what =
      cat(step.op, ".", step.kernel, " ", phase_name(step.phase), " ", types_text(step.operands));
  // The bytes the op touches, not the size of its tensors: a lookup reads only rows of its table.
  const Call call = call_of(step);
  line.bytes = cost_of(call).bytes;
  line.flops = step.flops;
  line.roofline = bound_seconds(call, rates.spec);
  line.seconds = seconds;
  line.calls = 1;
  const bool by_memory = line.roofline <= line.bytes / rates.spec.memory_bandwidth;
  if (!by_memory || line.bytes > static_cast<double>(rates.cache_bytes)) {
    line.memory_seconds = line.seconds;
    line.memory_roofline = line.roofline;
  }
  return line;
}

void add(Line& sum, const Line& line) {
  sum.calls += line.calls;
  sum.seconds += line.seconds;
  sum.roofline += line.roofline;
  sum.flops += line.flops;
  sum.bytes += line.bytes;
  sum.memory_seconds += line.memory_seconds;
  sum.memory_roofline += line.memory_roofline;
}

void print(const Line& line, double total) {
  std::printf("%9.3f %5.1f%% %5lld %8.1f %7.1f %9.3f %5.0f%%%c %s\n", line.seconds * 1e3,
              line.seconds / total * 100, static_cast<long long>(line.calls),
              line.flops / line.seconds * 1e-9, line.bytes / line.seconds * 1e-9,
              line.roofline * 1e3, line.roofline / line.seconds * 100, line.mark(),
              line.what.c_str());
}

void print_lines(const std::map<std::string, Line>& by_name, double total) {
  std::vector<const Line*> lines;
  for (const auto& [name, line] : by_name) lines.push_back(&line);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line* a, const Line* b) { return a->seconds > b->seconds; });
  std::printf("%9s %6s %5s %8s %7s %9s %6s\n", "ms", "share", "calls", "GFLOP/s", "GB/s",
              "roofline", "of it");
  for (const Line* line : lines) print(*line, total);
}

// The time of all steps if every matmul ran at the best rate seen among them, and all other bytes
// moved at the best bandwidth seen.
void print_floor(const Plan& plan, const std::vector<double>& times, const Rates& rates) {
  // Smaller steps stay in a cache.
  constexpr double kMemoryBytes = 8e6;
  double rate = 0, bandwidth = 0, flops = 0, bytes = 0, total = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const Step& step = plan.program(ProgramKind::Last)[i];
    const Line line = line_of(step, times[i], rates);
    total += times[i];
    if (call_of(step).op->traits.matmul) {
      rate = std::max(rate, line.flops / times[i]);
      flops += line.flops;
    } else {
      if (line.bytes > kMemoryBytes) bandwidth = std::max(bandwidth, line.bytes / times[i]);
      bytes += line.bytes;
    }
  }
  const double floor = flops / std::max(rate, 1.0) + (bandwidth > 0 ? bytes / bandwidth : 0.0);
  std::printf(
      "floor %.3f ms (%.0f%% of the time): %.1f GFLOP of matmuls at %.1f GFLOP/s, the rest at %.1f "
      "GB/s\n",
      floor * 1e3, floor / total * 100, flops * 1e-9, rate * 1e-9, bandwidth * 1e-9);
}

// Explains the rooflines, and the flags of lines above theirs.
void print_notes(const std::string& marks, const Rates& rates) {
  std::printf("roofline: the time that the rates of device spec %s allow, without the launch\n",
              rates.spec.name.c_str());
  if (marks.find('*') != std::string::npos) {
    std::printf("* above it: its data fits in the cache of %s, which is faster than the memory\n",
                human_bytes(static_cast<double>(rates.cache_bytes)).c_str());
  }
  if (marks.find('+') != std::string::npos) {
    std::printf(
        "+ above it: this machine is faster than the spec says; weft bench --calibrate measures "
        "it\n");
  }
}

// The shortest time of each step over several runs of the complete program.
std::vector<double> best_times(Executor& executor, int64_t repeats) {
  std::vector<double> best = executor.time_steps(ProgramKind::Last);
  for (int64_t i = 1; i < repeats; ++i) {
    const std::vector<double> next = executor.time_steps(ProgramKind::Last);
    for (size_t k = 0; k < best.size(); ++k) best[k] = std::min(best[k], next[k]);
  }
  return best;
}

ExitCode run_ops(const OpsArguments& arguments, const std::vector<std::string>& overrides) {
  end_on_stop_signals();
  Config config = load_config(arguments.config, overrides);
  validate_run(config, 1);
  USER_CHECK(mesh_of(config, 1).axes.empty(),
             describe_key(config, "parallelism.data_parallel_shard_degree"),
             " asks for collectives, which bench ops does not time; leave it at -1");
  Session session(config, compile(config, {.data_vocab = data_vocabulary(config)}));
  session.initialize(0);
  const TokenSource tokens = TokenSource::synthetic(session.compiled().spec.vocab_size);
  const TrainingConfig& training = config.training;
  // One ordinary step fills the inputs, which are kept for the timed steps.
  session.train_step({.step = 0, .seed = 0, .lr = 0}, [&](int64_t first_sample, Batch& batch) {
    fill_batch(tokens,
               {.first_sample = first_sample,
                .count = training.local_batch_size,
                .seq_len = training.seq_len},
               batch);
  });
  const Plan& plan = session.compiled().plan;
  const std::vector<double> times = best_times(session.executor(), arguments.repeats);
  const Rates rates{.spec = session.compiled().device,
                    .cache_bytes = session.device().cache_bytes()};
  std::map<std::string, Line> by_step, by_op;
  Line total{.what = "all"};
  for (size_t i = 0; i < times.size(); ++i) {
    const Step& step = plan.program(ProgramKind::Last)[i];
    const Line line = line_of(step, times[i], rates);
    for (auto* map : {&by_step, &by_op}) {
      const std::string name = map == &by_op ? step.op : line.what;
      Line& sum = map->try_emplace(name, Line{.what = name}).first->second;
      add(sum, line);
    }
    add(total, line);
  }
  print_lines(by_step, total.seconds);
  std::printf("\n");
  print_lines(by_op, total.seconds);
  print(total, total.seconds);
  print_floor(plan, times, rates);
  std::string marks(1, total.mark());
  for (const auto* map : {&by_step, &by_op}) {
    for (const auto& [name, line] : *map) marks += line.mark();
  }
  print_notes(marks, rates);
  return ExitCode::Done;
}

}  // namespace

void add_bench_ops(Command bench, const Finish& finish) {
  auto arguments = std::make_shared<OpsArguments>();
  Command command = bench.add_command(
      "ops",
      "compare the time of every op of a training step with its roofline; set any key with "
      "--section.key=value");
  command.add_option("CONFIG", arguments->config, "config file, as for train").required();
  command.add_option("--repeats", arguments->repeats, "runs, of which the best counts")
      .range(1, 10000);
  command.allow_overrides();
  command.on_run([=] { finish(run_ops(*arguments, command.overrides())); });
}

}  // namespace weft

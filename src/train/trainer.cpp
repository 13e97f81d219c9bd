// The training loop.
#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/loss_scale.h"
#include "compile/fit.h"
#include "compile/mfu.h"
#include "compile/validate_run.h"
#include "config/derived.h"
#include "config/load.h"
#include "config/lr_schedule.h"
#include "model/hf_config.h"
#include "plan/summary.h"
#include "runtime/comm/host_work.h"
#include "train/agreement.h"
#include "train/headline.h"
#include "train/metrics.h"
#include "train/session.h"
#include "train/training_data.h"
#include "train/weights.h"

namespace weft {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The state of the training loop.
struct Run {
  const Config& config;
  Session& session;
  const TrainingData& data;
  MetricsLog* log;  // rank 0 only
  Communicator& comm;
  BatchPrefetcher* batches;
  std::optional<double> peak_flops;  // of this rank's device, if known
  const StopRequest& stop;
  std::exception_ptr failure = {};  // why this rank's next batch could not be created
  std::string nonfinite = {};       // how the run became non-finite, if it did
  int ended_by = 0;                 // agreed by all ranks: a signal or kDataFailure; 0: none

  int64_t ranks() const { return comm.ranks(); }
  int64_t rank() const { return comm.rank(); }
};

StepResult run_step(Run& run, int64_t step) {
  const Config& config = run.config;
  StepScalars scalars{.step = step, .seed = config.debug.seed, .lr = learning_rate(config, step)};
  return run.session.train_step(scalars, [&](int64_t, Batch& batch) { run.batches->take(batch); });
}

constexpr int kDataFailure = 127;  // above every signal

// A signal or a failure reaches the ranks at different times, so all of them end the loop once any
// of them has seen one.
bool agree_to_end(Run& run) {
  run.ended_by = run.failure ? kDataFailure : run.stop.signal();
  const char own = static_cast<char>(run.ended_by);
  std::vector<char> all(static_cast<size_t>(run.ranks()));
  run.comm.report_progress(kHostChannel, "the end of the step");
  run.comm.exchange(std::span(&own, 1), all);
  run.comm.report_progress(kHostChannel, "");
  run.ended_by = static_cast<unsigned char>(*std::max_element(all.begin(), all.end()));
  return run.ended_by != 0;
}

// The mean loss over the validation batches; nullopt when the run ends before all are done.
std::optional<double> run_validation(Run& run) {
  const Config& config = run.config;
  const int64_t slots = validation_slots(config, run.ranks());
  std::vector<Batch> batches(static_cast<size_t>(slots));
  double sum = 0;
  for (int64_t i = 0; i < config.validation.steps * slots; ++i) {
    const int64_t place = i * run.ranks() + run.rank();
    try {
      batches[static_cast<size_t>(i % slots)] =
          run.data.validation_batch(place * config.training.local_batch_size);
    } catch (const UserError&) {
      run.failure = std::current_exception();
    }
    if ((i + 1) % slots != 0) continue;
    if (agree_to_end(run)) return std::nullopt;
    sum += run.session.evaluate(batches);
  }
  return sum / static_cast<double>(config.validation.steps);
}

// Counts skipped updates and decides when the run must end.
class NonFiniteGuard {
 public:
  explicit NonFiniteGuard(const TrainingConfig& config)
      : limit_(config.nonfinite == NonFinitePolicy::Stop ? 0 : config.nonfinite_limit) {}

  void count(const StepResult& result) {
    const bool finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
    // A smaller loss scale may fix the gradient, but never the loss.
    const bool shrinks = std::isfinite(result.loss) && result.loss_scale > kMinLossScale;
    skipping_ = !finite;
    total_ += finite ? 0 : 1;
    if (finite) in_a_row_ = 0;
    if (!finite && !shrinks) ++in_a_row_;
  }

  bool skipping() const { return skipping_; }
  bool tripped() const { return in_a_row_ > limit_; }
  int64_t total() const { return total_; }

  // What happened, after it has tripped.
  std::string message(int64_t step, const StepResult& result) const {
    return cat("step ", step, ": loss ", shown(result.loss), " and gradient norm ",
               shown(result.grad_norm), " are not both finite",
               limit_ > 0 ? cat(", ", in_a_row_, " steps in a row without an update") : "");
  }

 private:
  static std::string shown(double value) {
    return std::isnan(value) ? "nan" : format_double(value);  // the sign of a NaN is meaningless
  }

  int64_t limit_;
  int64_t in_a_row_ = 0;  // those that no smaller loss scale can fix
  int64_t total_ = 0;
  bool skipping_ = false;
};

// The metrics that depend on time: rates and the time left.
StepMetrics measure(const Run& run, int64_t step, const StepResult& result, double seconds) {
  const Config& config = run.config;
  const double tokens =
      static_cast<double>(global_batch_size(config, run.ranks()) * config.training.seq_len);
  const double own_rate = tokens / static_cast<double>(run.ranks()) / seconds;
  std::optional<double> mfu;
  if (run.peak_flops) {
    mfu =
        model_flops_utilization(run.session.compiled().flops_per_token, own_rate, *run.peak_flops);
  }
  return {.step = step + 1,
          .steps = config.training.steps,
          .loss = result.loss,
          .grad_norm = result.grad_norm,
          .lr = learning_rate(config, step),
          .tokens_per_second = tokens / seconds,
          .mfu = mfu,
          .memory_bytes = run.session.device().used_bytes(),
          .eta_seconds = seconds * static_cast<double>(config.training.steps - step - 1),
          .loss_scale = result.loss_scale};
}

TrainResult run_loop(Run& run) {
  const Config& config = run.config;
  TrainResult outcome;
  NonFiniteGuard guard(config.training);
  double smoothed = 0;
  for (int64_t step = 0; step < config.training.steps; ++step) {
    auto start = Clock::now();
    run.comm.start_step(step);
    StepResult result = run_step(run, step);
    double seconds = seconds_since(start);
    // Smoothed over about ten steps, so that the rates are readable.
    smoothed = step < 2 ? seconds : 0.9 * smoothed + 0.1 * seconds;
    guard.count(result);
    StepMetrics metrics = measure(run, step, result, smoothed);
    metrics.seconds = seconds;
    metrics.skipped = guard.skipping();
    if (run.log != nullptr) run.log->step(metrics);
    outcome.steps = step + 1;
    outcome.loss = result.loss;
    outcome.skipped = guard.total();
    if (guard.tripped()) {
      run.nonfinite = guard.message(step + 1, result);
      return outcome;
    }
    const bool last = step + 1 == config.training.steps;
    const bool validates =
        run.data.has_validation() && (last || (step + 1) % config.validation.freq == 0);
    if (last && !validates) break;  // nothing is left to skip
    if (!last) run.failure = run.batches->failure();
    if (agree_to_end(run)) break;
    if (!validates) continue;
    const std::optional<double> loss = run_validation(run);
    if (!loss) break;
    outcome.validation_loss = loss;
    if (run.log != nullptr) run.log->validation(step + 1, *loss);
  }
  return outcome;
}

void set_weights(const Config& config, Session& session) {
  const std::string& path = config.checkpoint.initial_load_path;
  if (path.empty()) {
    session.initialize(static_cast<uint64_t>(config.debug.seed));
    return;
  }
  const Compiled& compiled = session.compiled();
  load_weights(path, find_model(compiled.spec.model), compiled.params,
               [&](size_t i, std::span<const float> values) { session.write_param(i, values); });
}

std::string weights_folder(const Config& config) {
  return output_path(config, config.checkpoint.folder);
}

// A parameter to be saved; non-finite weights would be useless to whoever loads them.
void read_finite(Session& session, size_t param, std::span<float> values) {
  session.read_param(param, values);
  if (std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) return;
  throw UserError(ExitCode::NonFinite,
                  cat("parameter \"", session.compiled().params[param].name,
                      "\" is not finite after the last step, so no weights were saved; lower "
                      "optimizer.lr"));
}

// Rank 0 writes; the others only take part in gathering, parameter by parameter.
std::string save(const Run& run) {
  const HostWork work(run.comm, "saving weights");
  const Config& config = run.config;
  Session& session = run.session;
  const Compiled& compiled = session.compiled();
  std::string folder = weights_folder(config);
  if (run.rank() != 0) {
    for (size_t i = 0; i < compiled.params.size(); ++i) session.read_param(i, {});
    return folder;
  }
  SaveOptions options{.dtype = config.checkpoint.export_dtype, .tokenizer = run.data.tokenizer()};
  save_weights(
      folder, compiled.spec, compiled.params,
      [&](size_t i, std::span<float> values) { read_finite(session, i, values); }, options);
  return folder;
}

// The plan must fit before anything is allocated.
void check_fits(const Config& config, const Compiled& compiled) {
  if (rank_bytes(compiled.plan) <= memory_limit(compiled)) return;
  const int64_t ranks = compiled.plan.mesh.ranks();
  throw UserError(
      ExitCode::OutOfMemory,
      cat("the plan needs ", human_bytes(static_cast<double>(rank_bytes(compiled.plan))),
          ranks > 1 ? " per rank" : "", ", the device ", compiled.device.name, " has ",
          human_bytes(static_cast<double>(memory_limit(compiled))), "; ",
          advice(find_alternative(config, compiled.spec, ranks))));
}

// Finds out now, not after hours of training, whether the weights can be written.
void check_output(const Config& config) {
  make_directories(config.job.dump_folder);
  if (!config.checkpoint.enable) return;
  make_directories(weights_folder(config));
  OutputFile probe(weights_folder(config) + "/config.json");
}

// Writes what is known before the first step. Only a run that can start replaces the output of an
// earlier one in the folder.
void start_output(const Config& config, const Compiled& compiled) {
  const std::string& folder = config.job.dump_folder;
  write_text_file(folder + "/config.toml", config_to_toml(config));
  write_text_file(folder + "/plan.txt", to_string(summarize(compiled)));
}

// The run's files that exist.
std::vector<std::string> written_files(const Config& config, const std::string& weights_folder) {
  std::vector<std::string> written;
  for (const std::string& name :
       {std::string("config.toml"), std::string("plan.txt"), config.metrics.file}) {
    const std::string path = output_path(config, name);
    if (!name.empty() && path_exists(path)) written.push_back(path);
  }
  if (!weights_folder.empty()) written.push_back(weights_folder + "/");
  return written;
}

// Saves the weights and records which files of the run exist. A folder that was removed during the
// run is created again.
void finish_output(const Run& run, TrainResult& result) {
  const Config& config = run.config;
  const std::string& folder = config.job.dump_folder;
  const bool removed = run.log != nullptr && !path_exists(folder);
  if (removed) run.log->note(cat(folder, ": the folder was removed during the run; created again"));
  const bool worth_saving = run.nonfinite.empty() || result.skipped < result.steps;
  if (config.checkpoint.enable && worth_saving) result.weights_folder = save(run);
  if (removed) {
    make_directories(folder);
    start_output(config, run.session.compiled());
  }
  if (run.log == nullptr) return;
  result.written = written_files(config, result.weights_folder);
  result.missing = run.log->missing();
}

// Ends a run that could not read its data.
[[noreturn]] void fail_data(const Run& run, const TrainResult& result) {
  try {
    std::rethrow_exception(run.failure);
  } catch (const UserError& error) {
    if (result.weights_folder.empty()) throw;
    throw UserError(error.code(), cat(error.what(), "; the weights of step ", result.steps,
                                      " are in ", result.weights_folder));
  }
}

// Ends a run that stayed non-finite. The parameters are those of the last good update: skipped
// steps do not change them.
[[noreturn]] void fail_nonfinite(const Run& run, const TrainResult& result) {
  std::string saved =
      result.weights_folder.empty()
          ? ""
          : cat("; the weights of the last good step are in ", result.weights_folder);
  throw UserError(ExitCode::NonFinite,
                  cat(run.nonfinite, saved, "; lower optimizer.lr or check the data of this step"));
}

}  // namespace

std::string output_path(const Config& config, const std::string& name) {
  return std::filesystem::path(config.job.dump_folder) / name;
}

TrainResult train(const Config& config, const StopRequest& stop, Communicator& comm) {
  const int64_t ranks = comm.ranks();
  const bool first = comm.rank() == 0;
  validate_run(config, ranks);
  std::optional<HostWork> start(std::in_place, comm, "the start of the run");
  std::vector<WeightedFile> files = open_training_files(config);
  Config to_compile = config;
  if (!first) to_compile.compile.dump_folder.clear();  // only one rank writes dumps
  Compiled compiled = compile(to_compile, {.data_vocab = data_vocabulary(files), .ranks = ranks});
  check_fits(config, compiled);
  check_agreement(config, compiled.plan, comm);
  const TrainingData data(config, std::move(files), compiled.spec.vocab_size);
  const std::string& load_path = config.checkpoint.initial_load_path;
  if (!load_path.empty()) {
    check_weights(load_path, find_model(compiled.spec.model), compiled.params);
    const std::string described = load_path + "/config.json";
    if (path_exists(described)) read_token_ids(described, compiled.spec);
  }

  if (first) check_output(config);
  Session session(config, std::move(compiled), comm);
  set_weights(config, session);
  std::optional<MetricsLog> log;
  if (first) {
    start_output(config, session.compiled());
    const std::string& name = config.metrics.file;
    log.emplace(name.empty() ? "" : output_path(config, name), config.metrics.log_freq);
    for (const std::string& line : headline(config, session.compiled())) log_line(line);
  }
  start.reset();

  BatchPrefetcher batches(data, session.first_samples());
  std::optional<double> peak;
  if (first) peak = peak_flops(config, session.compiled().device, session.device());
  Run run{config, session, data, log ? &*log : nullptr, comm, &batches, peak, stop};
  TrainResult result = run_loop(run);
  finish_output(run, result);
  if (run.ended_by == kDataFailure) {
    comm.barrier();  // a failing rank would end the one that writes
    if (run.failure) fail_data(run, result);
  } else {
    result.signal = run.ended_by;
  }
  if (!run.nonfinite.empty()) fail_nonfinite(run, result);
  return result;
}

}  // namespace weft

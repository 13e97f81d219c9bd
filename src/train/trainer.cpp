// The training loop.
#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/disk.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
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
#include "train/load_weights.h"
#include "train/metrics.h"
#include "train/model_texts.h"
#include "train/nonfinite_guard.h"
#include "train/resume.h"
#include "train/run_folder.h"
#include "train/saver.h"
#include "train/session.h"
#include "train/training_data.h"

namespace weft {

namespace {

using Clock = std::chrono::steady_clock;

// A run that was just killed holds its folder until the kernel has ended all of its processes.
constexpr std::chrono::seconds kLockPatience{5};

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
  Saver* saver;                      // null: nothing is saved
  TrainingState state;               // after the last step done
  std::optional<double> peak_flops;  // of this rank's device, if known
  const StopRequest& stop;
  std::exception_ptr failure = {};  // why this rank's next batch could not be created
  std::string nonfinite = {};       // how the run became non-finite, if it did
  int ended_by = 0;                 // agreed by all ranks: a signal or kDataFailure; 0: none
  std::string save_failure = {};    // why checkpoints cannot be saved, once the run gives up

  int64_t ranks() const { return comm.ranks(); }
  int64_t rank() const { return comm.rank(); }
  Degrees degrees() const { return degrees_of(config, comm.ranks()); }
};

StepResult run_step(Run& run, int64_t step) {
  const Config& config = run.config;
  StepScalars scalars{.step = step, .seed = config.debug.seed, .lr = learning_rate(config, step)};
  return run.session.train_step(scalars, [&](int64_t, Batch& batch) { run.batches->take(batch); });
}

constexpr int kDataFailure = 127;  // above every signal

// What every rank tells the others after a step.
struct Signal {
  unsigned char ended_by = 0;
  SavePhase save = SavePhase::Idle;
};

// A signal or a failure reaches the ranks at different times, so all of them end the loop once any
// of them has seen one. The same exchange moves a save in the background forward.
bool agree_to_end(Run& run) {
  const int reason = run.failure ? kDataFailure : run.stop.signal();
  const Signal own{static_cast<unsigned char>(reason),
                   run.saver == nullptr ? SavePhase::Idle : run.saver->phase()};
  std::vector<Signal> all(static_cast<size_t>(run.ranks()));
  run.comm.report_progress(kHostChannel, "the end of the step");
  run.comm.exchange(std::span(reinterpret_cast<const char*>(&own), sizeof own),
                    std::span(reinterpret_cast<char*>(all.data()), all.size() * sizeof own));
  run.comm.report_progress(kHostChannel, "");
  std::vector<SavePhase> phases;
  run.ended_by = 0;
  for (const Signal& signal : all) {
    run.ended_by = std::max<int>(run.ended_by, signal.ended_by);
    phases.push_back(signal.save);
  }
  if (run.saver != nullptr) run.saver->advance(phases);
  return run.ended_by != 0;
}

// The mean loss over the validation batches; nullopt when the run ends before all are done.
std::optional<double> run_validation(Run& run) {
  const Config& config = run.config;
  const int64_t slots = validation_slots(config, run.degrees());
  std::vector<Batch> batches(static_cast<size_t>(slots));
  double sum = 0;
  for (int64_t i = 0; i < config.validation.steps * slots; ++i) {
    const Degrees degrees = run.degrees();
    const int64_t place = i * degrees.batch_ranks() + degrees.batch_rank(run.rank());
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

// The metrics that depend on time: rates and the time left.
StepMetrics measure(const Run& run, int64_t step, const StepResult& result, double seconds) {
  const Config& config = run.config;
  const double tokens =
      static_cast<double>(global_batch_size(config, run.degrees()) * config.training.seq_len);
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
          .loss_scale = result.loss_scale,
          .experts = result.experts};
}

// Reports how saves have ended. Three failures in a row end the run: it would lose its result.
bool report_saves(Run& run) {
  constexpr int64_t kMostFailures = 3;
  for (const SaveOutcome& save : run.saver->take_outcomes()) {
    const bool last_chance = run.saver->failures_in_a_row() >= kMostFailures;
    if (!save.error.empty() && last_chance) run.save_failure = save.error;
    if (run.log != nullptr) run.log->checkpoint(save, last_chance);
  }
  return run.save_failure.empty();
}

// Saves a checkpoint if one is due after this step; returns whether the run can continue.
bool save_if_due(Run& run) {
  if (run.saver == nullptr) return true;
  const CheckpointConfig& config = run.config.checkpoint;
  const bool due = config.interval > 0 && run.state.step % config.interval == 0 &&
                   run.state.step < run.config.training.steps;
  if (due && run.log != nullptr) run.log->sync();
  if (due && config.async_mode == AsyncMode::Disabled) run.saver->save(run.state);
  if (due && config.async_mode == AsyncMode::Async && !run.saver->start(run.state) &&
      run.log != nullptr) {
    run.log->note(cat("step ", run.state.step,
                      "  checkpoint skipped: the one before it is still being written"));
  }
  return report_saves(run);
}

// Validates after the step; returns whether the run continues.
bool validate(Run& run, TrainResult& outcome) {
  const std::optional<double> loss = run_validation(run);
  if (!loss) return false;
  outcome.validation_loss = loss;
  run.state.validation_due = false;
  if (run.log != nullptr) run.log->validation(run.state.step, *loss);
  return true;
}

bool validates_after(const Run& run, int64_t steps_done) {
  return run.data.has_validation() &&
         (steps_done == run.config.training.steps || steps_done % run.config.validation.freq == 0);
}

void count_step(Run& run, const NonFiniteGuard& guard) {
  ++run.state.step;
  run.state.samples += global_batch_size(run.config, run.degrees());
  run.state.skipped = guard.total();
  run.state.nonfinite_in_a_row = guard.in_a_row();
  run.state.validation_due = validates_after(run, run.state.step);
}

TrainResult run_loop(Run& run) {
  const Config& config = run.config;
  TrainResult outcome;
  outcome.steps = run.state.step;
  outcome.skipped = run.state.skipped;
  NonFiniteGuard guard(config.training, run.state);
  if (run.state.validation_due && !validate(run, outcome)) return outcome;
  double smoothed = 0;
  const int64_t first = run.state.step;
  for (int64_t step = first; step < config.training.steps; ++step) {
    auto start = Clock::now();
    run.comm.start_step(step);
    StepResult result = run_step(run, step);
    double seconds = seconds_since(start);
    // Smoothed over about ten steps, so that the rates are readable.
    smoothed = step < first + 2 ? seconds : 0.9 * smoothed + 0.1 * seconds;
    guard.count(result);
    StepMetrics metrics = measure(run, step, result, smoothed);
    metrics.seconds = seconds;
    metrics.skipped = guard.skipping();
    if (run.log != nullptr) run.log->step(metrics);
    count_step(run, guard);
    outcome.steps = step + 1;
    outcome.loss = result.loss;
    outcome.skipped = guard.total();
    if (guard.tripped()) {
      run.nonfinite = guard.message(step + 1, result);
      return outcome;
    }
    const bool last = step + 1 == config.training.steps;
    if (last && !run.state.validation_due) break;  // nothing is left to skip
    if (!last) run.failure = run.batches->failure();
    if (agree_to_end(run)) break;
    if (run.state.validation_due && !validate(run, outcome)) break;
    if (!save_if_due(run)) break;
  }
  return outcome;
}

void set_weights(const Config& config, Session& session) {
  if (config.checkpoint.initial_load_path.empty()) {
    session.initialize(static_cast<uint64_t>(config.debug.seed));
    return;
  }
  const std::string path = resolve_weights(config.checkpoint.initial_load_path);
  load_weights(open_weights(path, session.compiled()), session);
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

// The right to write the run's files. The folder of its checkpoints has a lock of its own: other
// runs may be given the same one, and it is all that `weft checkpoint prune` knows.
struct RunLock {
  explicit RunLock(const Config& config)
      : run(config.job.dump_folder, kLockPatience,
            "wait for it to end, or set another job.dump_folder") {
    const std::string path = checkpoint_path(config);
    if (!config.checkpoint.enable && !path_exists(path)) return;
    std::error_code missing;
    if (std::filesystem::equivalent(path, config.job.dump_folder, missing)) return;
    checkpoints.emplace(path, kLockPatience,
                        "wait for it to end, or set another checkpoint.folder");
  }
  FolderLock run;
  std::optional<FolderLock> checkpoints;
};

// Finds out now, not after hours of training, whether a checkpoint can be written.
void check_output(const Config& config, const Saver* saver) {
  if (saver == nullptr) return;
  saver->check_space();
  const CheckpointFolder folder(checkpoint_path(config));
  folder.remove_partials();
  const std::string probe = folder.partial_path(0, 0);
  folder.begin(probe);
  remove_folder(probe);
}

// Writes what is known before the first step. Only a run that can start replaces the output of an
// earlier one in the folder.
void start_output(const Config& config, const Compiled& compiled) {
  const std::string& folder = config.job.dump_folder;
  write_text_file(folder + "/config.toml", config_to_toml(config));
  write_text_file(folder + "/plan.txt", to_string(summarize(compiled)));
}

// The run's files that exist.
std::vector<std::string> written_files(const Config& config, const std::string& checkpoint) {
  std::vector<std::string> written;
  for (const std::string& name :
       {std::string("config.toml"), std::string("plan.txt"), config.metrics.file}) {
    const std::string path = output_path(config, name);
    if (!name.empty() && path_exists(path)) written.push_back(path);
  }
  if (!checkpoint.empty()) written.push_back(checkpoint + "/");
  return written;
}

// Saves the last checkpoint, unless it is there already.
void save_last(Run& run, TrainResult& result) {
  if (run.saver == nullptr) return;
  run.saver->finish();
  report_saves(run);
  const bool worth_saving = run.nonfinite.empty() || result.skipped < result.steps;
  if (worth_saving && run.saver->committed_step() != run.state.step && run.save_failure.empty()) {
    if (run.log != nullptr) run.log->sync();
    run.saver->save(run.state);
    std::vector<SaveOutcome> outcomes = run.saver->take_outcomes();
    const SaveOutcome& save = outcomes.back();
    if (!save.error.empty()) throw UserError(save.code, save.error);
    if (run.log != nullptr) run.log->checkpoint(save, false);
  }
  if (run.saver->committed_step() >= 0) {
    result.checkpoint =
        CheckpointFolder(checkpoint_path(run.config)).path_of(run.saver->committed_step());
  }
}

// Saves the last checkpoint and records which files of the run exist. A folder that was removed
// during the run is created again.
void finish_output(Run& run, TrainResult& result) {
  const Config& config = run.config;
  const std::string& folder = config.job.dump_folder;
  const bool removed = run.log != nullptr && !path_exists(folder);
  if (removed) run.log->note(cat(folder, ": the folder was removed during the run; created again"));
  save_last(run, result);
  if (removed) {
    make_directories(folder);
    start_output(config, run.session.compiled());
  }
  if (run.log == nullptr) return;
  result.written = written_files(config, result.checkpoint);
  result.missing = run.log->missing();
}

// Ends a run that could not read its data.
[[noreturn]] void fail_data(const Run& run, const TrainResult& result) {
  try {
    std::rethrow_exception(run.failure);
  } catch (const UserError& error) {
    if (result.checkpoint.empty()) throw;
    throw UserError(error.code(),
                    cat(error.what(), "; step ", result.steps, " is saved in ", result.checkpoint));
  }
}

// Ends a run that stayed non-finite. The parameters are those of the last good update: skipped
// steps do not change them.
[[noreturn]] void fail_nonfinite(const Run& run, const TrainResult& result) {
  std::string saved = result.checkpoint.empty()
                          ? ""
                          : cat("; the weights of the last good step are in ", result.checkpoint);
  throw UserError(ExitCode::NonFinite,
                  cat(run.nonfinite, saved, "; lower optimizer.lr or check the data of this step"));
}

// Ends a run that did not end well with its error.
void report_failure(Run& run, TrainResult& result) {
  if (run.ended_by == kDataFailure) {
    run.comm.barrier();  // a failing rank would end the one that writes
    if (run.failure) fail_data(run, result);
  } else {
    result.signal = run.ended_by;
  }
  if (!run.save_failure.empty()) {
    throw UserError(ExitCode::CannotWrite,
                    cat("3 checkpoints in a row could not be saved: ", run.save_failure));
  }
  if (!run.nonfinite.empty()) fail_nonfinite(run, result);
}

// The files of every checkpoint besides tensors: the model and its tokenizer as Hugging Face reads
// them, and the config of the run.
std::vector<TextFile> checkpoint_texts(const Config& config, const ModelSpec& spec,
                                       const std::optional<Tokenizer>& tokenizer) {
  std::vector<TextFile> texts = model_texts(spec, tokenizer, config.checkpoint.export_dtype);
  texts.push_back({std::string(kConfigName), config_to_toml(config)});
  return texts;
}

// The state before the first step.
TrainingState first_state(const Config& config, const Plan& plan, const std::string& tokenizer) {
  TrainingState state;
  state.seed = config.debug.seed;
  state.ranks = plan.mesh.ranks();
  state.mesh = mesh_text(plan.mesh);
  state.tokenizer = tokenizer;
  state.backend = config.device.backend;
  return state;
}

// Whether the ranks divide the work within a layer in the same way, and so add in the same order.
bool divides_layers_alike(const Config& a, const Config& b, const Degrees& degrees_a,
                          const Degrees& degrees_b) {
  const ParallelismConfig &x = a.parallelism, &y = b.parallelism;
  if (degrees_a.tp != degrees_b.tp || degrees_a.cp != degrees_b.cp) return false;
  return degrees_a.tp == 1 || (x.sequence_parallel == y.sequence_parallel &&
                               x.disable_loss_parallel == y.disable_loss_parallel);
}

// What differs from the run that made the checkpoint.
std::vector<std::string> resume_notes(const Config& config, const OpenCheckpoint& from,
                                      const TrainingState& now) {
  std::vector<std::string> notes;
  const TrainingState& saved = from.state;
  const std::vector<std::string> changes = changed_keys(from.config, config);
  if (!changes.empty()) notes.push_back("changed  " + join(changes, ", "));
  if (saved.step >= config.training.steps) {
    notes.push_back(cat("NOTE     nothing is left to do: training.steps = ", config.training.steps,
                        ", the checkpoint has ", saved.step));
  }
  const Degrees degrees_before = degrees_of(from.config, saved.ranks);
  const Degrees degrees = degrees_of(config, now.ranks);
  const int64_t before = global_batch_size(from.config, degrees_before);
  const int64_t batch = global_batch_size(config, degrees);
  if (before != batch) {
    notes.push_back(cat("NOTE     a step now trains on ", batch, " sequences instead of ", before,
                        "; set training.global_batch_size to keep it fixed"));
    return notes;
  }
  const std::string differ = ": losses differ from those of the uninterrupted run by rounding";
  if (!divides_layers_alike(from.config, config, degrees_before, degrees)) {
    notes.push_back("NOTE     tensor or context parallelism has changed" + differ);
    return notes;
  }
  const bool same_machine = saved.ranks == now.ranks && saved.backend == now.backend;
  if (same_machine || (is_elastic(config) && saved.backend == now.backend)) return notes;
  notes.push_back(
      cat("NOTE     saved on ", saved.ranks, saved.ranks == 1 ? " rank" : " ranks", " with ",
          saved.backend, ", resumed on ", now.ranks, " with ", now.backend, differ,
          saved.backend == now.backend ? "; with debug.deterministic = \"elastic\" they would not"
                                       : ""));
  return notes;
}

// Where a run begins.
struct Start {
  TrainingState state;
  ResumedFrom from;  // without a checkpoint: step 0
  std::vector<std::string> notes;
};

// Sets weights and optimizer state: from a checkpoint, or as the config says.
Start set_state(const Config& config, Resume* resume, Session& session,
                const std::string& tokenizer) {
  Start start{first_state(config, session.compiled().plan, tokenizer), {}, {}};
  if (resume == nullptr) {
    set_weights(config, session);
    return start;
  }
  const auto before = Clock::now();
  resume->load(session);
  const OpenCheckpoint& from = resume->checkpoint();
  start.from = {from.state.step, from.path, from.digest, seconds_since(before)};
  start.notes = resume_notes(config, from, start.state);
  // How far the run is comes from the checkpoint, where it runs does not.
  TrainingState state = from.state;
  state.ranks = start.state.ranks;
  state.mesh = start.state.mesh;
  state.backend = start.state.backend;
  start.state = std::move(state);
  return start;
}

// Weights to start from must fit the model; checked before memory is allocated.
void check_initial_weights(const Config& config, Compiled& compiled) {
  if (config.checkpoint.initial_load_path.empty()) return;
  const std::string path = resolve_weights(config.checkpoint.initial_load_path);
  check_texts(path);
  open_weights(path, compiled);
  const std::string described = path + "/config.json";
  if (path_exists(described)) read_token_ids(described, compiled.spec);
}

}  // namespace

TrainResult train(const Config& config, const StopRequest& stop, Communicator& comm,
                  const TrainOptions& options) {
  const int64_t ranks = comm.ranks();
  const bool first = comm.rank() == 0;
  validate_run(config, ranks);
  std::optional<HostWork> start(std::in_place, comm, "the start of the run");
  if (config.model.flavor.find('/') != std::string::npos) check_texts(config.model.flavor);
  std::vector<WeightedFile> files = open_training_files(config);
  Config to_compile = config;
  if (!first) to_compile.compile.dump_folder.clear();  // only one rank writes dumps
  Compiled compiled = compile(to_compile, {.data_vocab = data_vocabulary(files), .ranks = ranks});
  check_fits(config, compiled);
  check_agreement(config, compiled.plan, comm);
  const TrainingData data(config, std::move(files), compiled.spec.vocab_size);
  const std::string tokenizer = data.tokenizer() ? data.tokenizer()->identity() : "";

  if (!options.resume) check_initial_weights(config, compiled);
  std::optional<RunLock> lock;
  const bool continues = options.resume && Resume::asks_for_own(config, *options.resume);
  if (first) {
    lock.emplace(config);
    if (!continues && !options.overwrite) check_unused(config);
  }
  std::optional<Resume> resume;
  if (options.resume) resume.emplace(config, *options.resume, compiled.spec, tokenizer, comm);
  const bool resumes = resume && resume->found();
  if (first && resumes && continues && !options.overwrite) {
    check_newest(config, resume->checkpoint().state.step);
  }
  if (options.resume && !resumes) check_initial_weights(config, compiled);

  Session session(config, std::move(compiled), comm);
  std::optional<Saver> saver;
  if (config.checkpoint.enable) {
    saver.emplace(config, session,
                  checkpoint_texts(config, session.compiled().spec, data.tokenizer()), comm);
  }
  if (first) check_output(config, saver ? &*saver : nullptr);
  const Start begun = set_state(config, resumes ? &*resume : nullptr, session, tokenizer);
  const TrainingState& state = begun.state;
  if (saver && resumes && continues) saver->set_committed(state.step);
  std::optional<MetricsLog> log;
  if (first) {
    if (options.overwrite) remove_results(config, resumes && continues ? state.step : -1);
    start_output(config, session.compiled());
    const std::string& name = config.metrics.file;
    log.emplace(name.empty() ? "" : output_path(config, name), config.metrics.log_freq, state.step);
    for (const std::string& line : headline(config, session.compiled(), begun.from.checkpoint)) {
      log_line(line);
    }
    if (options.resume && !resumes) {
      log_line(cat("NOTE     no checkpoint in ", checkpoint_path(config), ": starts at step 0"));
    }
    if (resumes) log->resumed(begun.from);
    for (const std::string& note : begun.notes) log_line(note);
  }
  start.reset();

  BatchPrefetcher batches(data, session.first_samples(), state.step);
  std::optional<double> peak;
  if (first) peak = peak_flops(config, session.compiled().device, session.device());
  Run run{config, session, data, log ? &*log : nullptr, comm, &batches, saver ? &*saver : nullptr,
          state,  peak,    stop};
  TrainResult result = run_loop(run);
  finish_output(run, result);
  report_failure(run, result);
  return result;
}

}  // namespace weft

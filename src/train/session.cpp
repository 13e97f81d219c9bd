// Runs a compiled plan: writes inputs, runs its programs, reads its outputs.
#include "train/session.h"

#include <algorithm>

#include "base/error.h"
#include "base/machine.h"
#include "compile/fit.h"
#include "config/derived.h"
#include "graph/names.h"
#include "runtime/comm/sum.h"
#include "train/host_chunks.h"
#include "train/init.h"

namespace weft {

namespace {

int64_t valid_tokens(const Batch& batch) {
  return std::count_if(batch.targets.begin(), batch.targets.end(),
                       [](int32_t t) { return t >= 0; });
}

int64_t bytes_of(std::span<const int32_t> values) {
  return static_cast<int64_t>(values.size_bytes());
}

// Ranks on one machine get equal shares of its cores, unless the config says otherwise.
int64_t threads_per_rank(const Config& config, int64_t ranks) {
  const int64_t threads = config.device.threads;
  return threads > 0 ? threads : std::max<int64_t>(1, usable_cores() / ranks);
}

}  // namespace

CommOptions comm_options(const Config& config) {
  return {.timeout_seconds = config.comm.timeout_seconds,
          .delay = {.bytes_per_second = config.comm.link_bandwidth,
                    .latency_seconds = config.comm.link_latency}};
}

std::unique_ptr<Communicator> connect_devices(const Config& config,
                                              std::unique_ptr<Communicator> hosts) {
  const Backend& backend = find_backend(config.device.backend);
  if (backend.connect == nullptr) return hosts;
  return backend.connect(std::move(hosts), {.share_device = config.device.share_gpu});
}

Session::Session(const Config& config, Compiled compiled, Communicator& comm)
    : config_(config),
      compiled_(std::move(compiled)),
      comm_(comm),
      degrees_(degrees_of(config, comm.ranks())) {
  const Backend& backend = find_backend(config_.device.backend);
  const bool shares = config_.device.share_gpu;
  device_ = backend.make_device({.threads = threads_per_rank(config_, ranks()),
                                 .record = config_.device.cuda_graph,
                                 .index = shares ? 0 : rank(),
                                 .needed = shares ? 1 : ranks(),
                                 .tuning = compiled_.tuning,
                                 .tf32 = compiled_.plan.tf32});
  check_free_memory();
  executor_ = std::make_unique<Executor>(compiled_.plan, *device_, backend.kernels(), comm_);
  params_ = std::make_unique<ParamStore>(compiled_, *executor_, *device_, comm_);
  write_coordinates();
  const auto scale = static_cast<float>(config_.grad_scaler.init_scale);
  if (scales_loss()) write_scalar(names::kLossScale, scale);
}

// The device's free memory is checked before anything is allocated on it.
void Session::check_free_memory() const {
  const bool shared = config_.device.share_gpu && ranks() > 1;
  if (shared) comm_.barrier();  // every rank has created its device
  const std::optional<int64_t> free = device_->free_bytes();
  if (shared) comm_.barrier();  // nobody allocates before all have measured
  if (!free) return;
  const FreeMemory memory{.bytes = *free, .shared = shared};
  const int64_t needed = rank_bytes(compiled_.plan);
  if (needed <= memory.of_rank(compiled_)) return;
  const auto bytes = [](int64_t count) { return human_bytes(static_cast<double>(count)); };
  throw DeviceError(
      cat(device_->description(), ": the plan needs ", bytes(needed),
          ranks() > 1 ? " per rank" : "", ", ", bytes(memory.of_rank(compiled_)), " is free",
          shared ? " per rank" : "", "; ",
          advice(find_alternative(config_, compiled_.spec, ranks(),
                                  [&](const Compiled& other) { return memory.of_rank(other); }))),
      ExitCode::OutOfMemory);
}

void Session::initialize(uint64_t seed) {
  const std::vector<ParamInfo>& params = compiled_.params;
  set_params([&](size_t param, int64_t first, std::span<float> values) {
    in_chunks(std::ssize(values), params_->host_ranks(), [&](size_t at, size_t elements) {
      init_param(params[param], seed, first + static_cast<int64_t>(at),
                 values.subspan(at, elements));
    });
  });
}

void Session::set_params(const ElementValues& values) {
  for (size_t i = 0; i < compiled_.params.size(); ++i) params_->set(i, values);
}

void Session::write_param(size_t param, std::span<const float> values) {
  params_->set(param, [&](size_t, int64_t first, std::span<float> part) {
    std::copy_n(values.begin() + first, part.size(), part.begin());
  });
}

void Session::read_param(size_t param, std::span<float> values) {
  params_->read(param, values);
}

StepResult Session::train_step(const StepScalars& scalars, const BatchFn& batch) {
  StepResult result;
  result.loss_scale = loss_scale();
  result.loss = run_micro_batches(scalars, batch);
  result.grad_norm = read_scalar(names::kGradNorm);
  result.experts = expert_load();
  const bool replays = result.grad_norm < 0;
  if (!replays) return result;
  // Rows were lost: the step has changed nothing and is run again with room for all of them.
  const int64_t lost = result.experts->lost;
  result.loss = run_programs(scalars, {ProgramKind::ReplayMicro, ProgramKind::ReplayLast});
  result.grad_norm = read_scalar(names::kGradNorm);
  result.experts = expert_load();
  result.experts->lost = lost;
  result.experts->replayed = true;
  return result;
}

std::optional<ExpertLoad> Session::expert_load() const {
  const std::vector<float> counts = read_output(names::kExpertCounts);
  if (counts.empty()) return std::nullopt;
  ExpertLoad load;
  const int64_t experts = row_length(executor_->bound(names::kExpertCounts));
  for (auto row = counts.begin(); row != counts.end(); row += experts) {
    load.tokens.emplace_back(row, row + experts);
  }
  for (const float lost : read_output(names::kLostRows)) load.lost += static_cast<int64_t>(lost);
  return load;
}

// Empty if the plan does not have it.
std::vector<float> Session::read_output(std::string_view name) const {
  const std::vector<Binding>& outputs = compiled_.plan.outputs;
  const bool known = std::any_of(outputs.begin(), outputs.end(),
                                 [&](const Binding& output) { return output.name == name; });
  if (!known) return {};
  std::vector<float> values(static_cast<size_t>(executor_->bound(name).elements()));
  executor_->read(name, values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
  return values;
}

std::optional<double> Session::loss_scale() const {
  if (!scales_loss()) return std::nullopt;
  return read_scalar(names::kLossScale);
}

void Session::forward_backward(const BatchFn& batch) {
  run_micro_batches({}, batch);
}

void Session::run(ProgramKind program) {
  params_->forget_gathered();
  if (observe_ && program == ProgramKind::Last) {
    executor_->run_observed(program, observe_);
  } else if (config_.device.step_by_step) {
    executor_->time_steps(program);
  } else {
    executor_->run(program);
  }
}

int64_t Session::first_sample(int64_t slot) const {
  return config_.training.local_batch_size *
         global_micro_batch(config_, degrees_, {.rank = rank(), .slot = slot});
}

std::vector<int64_t> Session::first_samples() const {
  std::vector<int64_t> samples;
  for (int64_t slot = 0; slot < accumulation_steps(config_, degrees_); ++slot) {
    samples.push_back(first_sample(slot));
  }
  return samples;
}

float Session::run_micro_batches(const StepScalars& scalars, const BatchFn& batch) {
  int64_t micro_batches = accumulation_steps(config_, degrees_);
  // The loss is divided by the valid tokens of the entire step, so all micro-batches are made
  // first.
  batches_.resize(static_cast<size_t>(micro_batches));
  int64_t valid = 0;
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    Batch& next = batches_[static_cast<size_t>(micro)];
    batch(first_sample(micro), next);
    valid += valid_tokens(next);
  }
  write_valid_tokens(valid);
  if (has_input(names::kLossScale)) write_scalar(names::kLossScale, 1.0F);
  if (has_input(names::kLr)) write_scalar(names::kLr, static_cast<float>(scalars.lr));
  return run_programs(scalars, {});
}

float Session::run_programs(const StepScalars& scalars, const StepPrograms& programs) {
  const int64_t micro_batches = std::ssize(batches_);
  float loss = 0;
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    if (has_input(names::kRng)) write_rng(scalars, first_sample(micro));
    if (has_input(names::kMicro)) write_int(names::kMicro, static_cast<int32_t>(micro));
    write_batch(batches_[static_cast<size_t>(micro)]);
    run(micro + 1 < micro_batches ? programs.micro : programs.last);
    if (!is_elastic(config_)) loss += read_scalar(names::kLoss);
  }
  return is_elastic(config_) ? read_scalar(names::kLoss) : loss;  // the plan itself sums it
}

void Session::write_rng(const StepScalars& scalars, int64_t first_sample) {
  const int32_t rng[4] = {static_cast<int32_t>(scalars.seed),
                          static_cast<int32_t>(scalars.seed >> 32),
                          static_cast<int32_t>(scalars.step), static_cast<int32_t>(first_sample)};
  executor_->write(names::kRng, rng, sizeof rng);
}

double Session::evaluate(std::span<const Batch> batches) {
  int64_t valid = 0;
  for (const Batch& batch : batches) valid += valid_tokens(batch);
  write_valid_tokens(valid);
  std::vector<float> losses;
  for (const Batch& batch : batches) {
    write_batch(batch);
    run(ProgramKind::Eval);
    losses.push_back(read_scalar(names::kLoss));
  }
  std::vector<const void*> parts;
  for (const float& loss : losses) parts.push_back(&loss);
  float sum = 0;
  tree_sum(parts, DType::F32, 1, {&sum, DType::F32});
  return sum;
}

std::vector<float> Session::logits(std::span<const int32_t> tokens) {
  executor_->write(names::kTokens, tokens.data(), bytes_of(tokens));
  run(ProgramKind::Eval);
  std::vector<float> values(tokens.size() * static_cast<size_t>(compiled_.spec.vocab_size));
  executor_->read(names::kLogits, values.data(),
                  static_cast<int64_t>(values.size() * sizeof(float)));
  return values;
}

// The valid tokens of all ranks: every rank divides its loss by the same number.
void Session::write_valid_tokens(int64_t own) {
  std::vector<int64_t> all(static_cast<size_t>(ranks()));
  comm_.report_progress(kHostChannel, "the count of tokens");
  comm_.exchange(std::span(reinterpret_cast<const char*>(&own), sizeof own),
                 std::span(reinterpret_cast<char*>(all.data()), all.size() * sizeof own));
  comm_.report_progress(kHostChannel, "");
  // Ranks that differ only along other axes than those of the batch have the same tokens.
  int64_t valid = 0;
  for (int64_t rank = 0; rank < ranks(); rank += degrees_.cp * degrees_.tp) {
    valid += all[static_cast<size_t>(rank)];
  }
  write_scalar(names::kCount, static_cast<float>(std::max<int64_t>(valid, 1)));
}

// The plan is the same on every rank; this rank's mesh coordinates are inputs.
void Session::write_coordinates() {
  const std::string prefix = names::coordinate("");
  for (const Binding& input : compiled_.plan.inputs) {
    if (!input.name.starts_with(prefix)) continue;
    const std::string axis = input.name.substr(prefix.size());
    write_int(input.name, static_cast<int32_t>(comm_.coordinate(axis)));
  }
}

void Session::write_scalar(std::string_view name, float value) {
  executor_->write(name, &value, sizeof value);
}

void Session::write_int(std::string_view name, int32_t value) {
  executor_->write(name, &value, sizeof value);
}

bool Session::has_input(std::string_view name) const {
  const std::vector<Binding>& inputs = compiled_.plan.inputs;
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](const Binding& input) { return input.name == name; });
}

bool Session::scales_loss() const {
  return find_state(compiled_.plan, {StateRole::LossScale}) != nullptr;
}

float Session::read_scalar(std::string_view name) const {
  float value = 0;
  executor_->read(name, &value, sizeof value);
  return value;
}

void Session::write_batch(const Batch& batch) {
  constexpr int32_t kIgnored = -1;
  write_rows(names::kTokens, batch.tokens, 0);
  write_rows(names::kTargets, batch.targets, kIgnored);
  if (!has_input(names::kPositions)) return;
  std::vector<int32_t> counted(batch.positions.empty() ? batch.tokens.size() : 0);
  for (size_t i = 0; i < counted.size(); ++i) {
    counted[i] = static_cast<int32_t>(i) % static_cast<int32_t>(config_.training.seq_len);
  }
  write_rows(names::kPositions, counted.empty() ? batch.positions : counted, 0);
}

// Ranks that share sequences get all of their tokens and keep their own shards. Sequences are
// filled up with `padding`.
void Session::write_rows(std::string_view input, std::span<const int32_t> rows, int32_t padding) {
  if (degrees_.cp == 1) return executor_->write(input, rows.data(), bytes_of(rows));
  const int64_t length = config_.training.seq_len;
  const int64_t coordinate = comm_.coordinate(names::kContextAxis);
  const auto ranges = shard_ranges(names::kContextAxis, planned_seq_len(config_, degrees_),
                                   degrees_.cp, coordinate);
  std::vector<int32_t> own;
  for (int64_t row = 0; row < std::ssize(rows); row += length) {
    for (const DimRange& range : ranges) {
      for (int64_t at = range.begin; at < range.begin + range.size; ++at) {
        own.push_back(at < length ? rows[static_cast<size_t>(row + at)] : padding);
      }
    }
  }
  executor_->write(input, own.data(), bytes_of(own));
}

}  // namespace weft

// Compares this build with a trace: gradients of step 1, then all steps, then the final weights.
#include "tools/verify.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "base/loss_scale.h"
#include "base/one_of.h"
#include "compile/validate_run.h"
#include "config/derived.h"
#include "graph/roles.h"
#include "plan/index_map.h"
#include "tools/trace.h"
#include "train/session.h"
#include "train/weights.h"

namespace weft {

namespace {

using Tensors = std::vector<std::vector<float>>;

Tensors load_tensors(const std::string& path, const ModelSpec& spec,
                     const std::vector<ParamInfo>& params) {
  const WeightFiles files(path, find_model(spec.model), params);
  Tensors tensors;
  for (size_t i = 0; i < params.size(); ++i) tensors.push_back(files.read(i));
  return tensors;
}

// Those that have gradients.
std::vector<ParamInfo> trained(std::vector<ParamInfo> params) {
  std::erase_if(params, [](const ParamInfo& param) { return !param.trained; });
  return params;
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

// Keeps the largest error; a NaN counts as infinite, so that it can never pass.
void note(Comparison& comparison, double error, const std::string& where) {
  if (std::isnan(error)) error = INFINITY;
  if (error < comparison.worst) return;
  comparison.worst = error;
  comparison.where = where;
}

// Keys, and key prefixes, that do not change what the trace trains.
const std::vector<std::string> kOpenKeys = {"device.",
                                            "compile.",
                                            "activation_checkpoint.",
                                            "grad_scaler.",
                                            "parallelism.",
                                            "training.mixed_precision_param",
                                            "training.mixed_precision_reduce",
                                            "training.keep_low_precision",
                                            "training.loss_chunks"};

void check_keys(const Config& config) {
  for (const auto& [key, subject] : config.set_by_user) {
    const bool is_open =
        std::any_of(kOpenKeys.begin(), kOpenKeys.end(),
                    [&key = key](const std::string& open) { return key.starts_with(open); });
    if (is_open) continue;
    std::vector<std::string> shown = kOpenKeys;
    for (std::string& open : shown) open += open.ends_with('.') ? "*" : "";
    throw UserError(ExitCode::Config, cat(subject, " has no effect on a trace, expected ",
                                          one_of(shown), "; remove the key"));
  }
}

Config trace_config(const Config& base, const Trace& trace, const Degrees& degrees) {
  Config config = base;
  config.training.local_batch_size = trace.batch / std::max<int64_t>(1, degrees.batch_ranks());
  config.training.global_batch_size = -1;
  config.training.seq_len = trace.seq_len;
  config.training.max_norm = trace.optimizer.clip_norm;
  config.training.steps = static_cast<int64_t>(trace.losses.size());
  config.optimizer.lr = trace.optimizer.lr;
  config.optimizer.beta1 = trace.optimizer.beta1;
  config.optimizer.beta2 = trace.optimizer.beta2;
  config.optimizer.eps = trace.optimizer.eps;
  config.optimizer.weight_decay = trace.optimizer.weight_decay;
  config.optimizer.expert_bias_rate = 0;
  config.validation.enable = false;
  return config;
}

void write_all(Session& session, const Tensors& weights) {
  for (size_t i = 0; i < weights.size(); ++i) session.write_param(i, weights[i]);
}

// Fills a batch with consecutive sequences of the trace's batch, starting at `first_sample`.
void fill(const TraceRun& run, int64_t first_sample, Batch& batch) {
  const int64_t length = run.trace.seq_len;
  const auto rows = [&](const std::vector<int32_t>& all) {
    const auto begin = all.begin() + first_sample * length;
    return std::vector<int32_t>(begin, begin + run.config.training.local_batch_size * length);
  };
  batch.tokens = rows(run.trace.tokens);
  batch.targets = rows(run.trace.targets);
}

// The own values of every rank.
std::vector<std::vector<float>> values_of_ranks(std::span<const float> own, Communicator& comm) {
  std::vector<float> all(own.size() * static_cast<size_t>(comm.ranks()));
  comm.exchange({reinterpret_cast<const char*>(own.data()), own.size_bytes()},
                {reinterpret_cast<char*>(all.data()), all.size() * sizeof(float)});
  std::vector<std::vector<float>> values;
  for (int64_t rank = 0; rank < comm.ranks(); ++rank) {
    const auto begin = all.begin() + rank * std::ssize(own);
    values.emplace_back(begin, begin + std::ssize(own));
  }
  return values;
}

// The layout of a gradient: distributed like its parameter, but alone in its tensor.
Binding gradient_layout(const IndexMap& map, size_t param, const Tensor& gradient) {
  const Binding& stored = map.binding(param);
  Binding alone{map.param(param).name, {0, gradient.dtype, gradient.shape}, stored.axis};
  for (const FlatMember& member : stored.members) {
    if (member.name == alone.name) alone.members.push_back(member);
  }
  return alone;
}

// A full gradient in f32, without the loss scale.
std::vector<float> read_gradient(Session& session, size_t param, Communicator& comm) {
  const IndexMap& map = session.params().map();
  const std::string name = to_string(OutputKey{OutputRole::Gradient, map.param(param).name});
  const Tensor tensor = session.executor().bound(name);
  std::vector<float> own(static_cast<size_t>(tensor.elements()));
  if (tensor.dtype == DType::F32) {
    session.executor().read(name, own.data(), tensor.elements() * dtype_bytes(tensor.dtype));
  } else {
    CHECK(tensor.dtype == DType::BF16, name, " is ", dtype_name(tensor.dtype));
    std::vector<uint16_t> halves(own.size());
    session.executor().read(name, halves.data(), tensor.elements() * dtype_bytes(tensor.dtype));
    std::transform(halves.begin(), halves.end(), own.begin(), f32_from_bf16);
  }
  const std::vector<std::vector<float>> all = values_of_ranks(own, comm);
  const auto scale = static_cast<float>(session.loss_scale().value_or(1));
  std::vector<float> values(static_cast<size_t>(count(map.param(param).shape)));
  const Binding layout = gradient_layout(map, param, tensor);
  for (int64_t rank = 0; rank < comm.ranks(); ++rank) {
    const float* part = all[static_cast<size_t>(rank)].data();
    for (const ElementRun& run :
         stored_runs(session.compiled().plan, layout, map.param(param), rank)) {
      for (int64_t i = 0; i < run.elements; ++i) {
        values[static_cast<size_t>(run.first + i)] = part[run.at + i] / scale;
      }
    }
  }
  return values;
}

// One step of the trace; repeated while it only shrinks the loss scale.
StepResult train_step(Session& session, const StepScalars& scalars, const TraceRun& run) {
  while (true) {
    StepResult result =
        session.train_step(scalars, [&](int64_t first, Batch& batch) { fill(run, first, batch); });
    const bool shrinks = result.loss_scale > kMinLossScale;
    if (std::isfinite(result.grad_norm) || !shrinks) return result;
  }
}

// The gradients of step 1, from a plan without the optimizer pass, which returns them as outputs.
Comparison compare_gradients(const TraceRun& run, const Config& config, const Tensors& initial,
                             double tolerance, Communicator& comm) {
  Config without_update = config;
  without_update.compile.disable_passes.push_back("optimizer");
  without_update.parallelism.zero_stage.reset();  // applies only to an update
  // Without an update no step is run again, so that all rows must have room.
  if (config.parallelism.expert_capacity_factor) {
    without_update.parallelism.expert_capacity_factor =
        static_cast<double>(config.parallelism.expert_parallel_degree);
  }
  Session session(without_update, compile(without_update, run.trace.spec, comm.ranks()), comm);
  const auto& params = session.compiled().params;
  write_all(session, initial);
  session.forward_backward([&](int64_t first, Batch& batch) { fill(run, first, batch); });

  Tensors expected =
      load_tensors(run.folder + "/grads.safetensors", run.trace.spec, trained(params));
  double square = 0;
  for (const auto& tensor : expected) square += norm(tensor) * norm(tensor);
  double floor = 1e-6 * std::sqrt(square);
  Comparison comparison{.quantity = "gradients", .worst = 0, .tolerance = tolerance, .where = {}};
  auto wanted = expected.begin();
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].trained) continue;
    const std::vector<float> gradient = read_gradient(session, i, comm);
    double error = distance(gradient, *wanted) / std::max(norm(*wanted), floor);
    note(comparison, error, params[i].name);
    ++wanted;
  }
  return comparison;
}

}  // namespace

TraceRun open_trace(const std::string& folder, const Config& config, int64_t ranks) {
  check_keys(config);
  TraceRun run{.folder = folder, .trace = read_trace(folder), .config = {}};
  const int64_t batch = run.trace.batch;
  const Degrees degrees = degrees_of(config, ranks);
  USER_CHECK(degrees.ranks() != ranks || batch % degrees.batch_ranks() == 0,
             "command line: --ranks ", ranks, " does not divide the ", batch, " sequences of ",
             folder, "/trace.json; use a divisor of ", batch);
  run.config = trace_config(config, run.trace, degrees);
  validate_run(run.config, ranks);
  return run;
}

std::vector<Comparison> verify_trace(const TraceRun& run, const VerifyTolerances& tolerances,
                                     Communicator& comm) {
  const auto& [folder, trace, config] = run;
  Compiled compiled = compile(config, trace.spec, comm.ranks());
  Tensors initial = load_tensors(folder + "/model.safetensors", trace.spec, compiled.params);
  Tensors expected =
      load_tensors(folder + "/final.safetensors", trace.spec, trained(compiled.params));
  const WeightFiles checked(folder + "/grads.safetensors", find_model(trace.spec.model),
                            trained(compiled.params));
  Session session(config, std::move(compiled), comm);
  const auto& params = session.compiled().params;
  write_all(session, initial);

  Config gradients = config;
  Comparison losses{.quantity = "losses", .worst = 0, .tolerance = tolerances.loss, .where = {}};
  Comparison norms{
      .quantity = "gradient norms", .worst = 0, .tolerance = tolerances.loss, .where = {}};
  for (size_t step = 0; step < trace.losses.size(); ++step) {
    const StepResult result = train_step(
        session, {.step = static_cast<int64_t>(step), .seed = 0, .lr = config.optimizer.lr}, run);
    if (step == 0 && result.loss_scale) gradients.grad_scaler.init_scale = *result.loss_scale;
    std::string where = cat("step ", step + 1);
    note(losses, std::abs(result.loss / trace.losses[step] - 1), where);
    note(norms, std::abs(result.grad_norm / trace.grad_norms[step] - 1), where);
  }

  Comparison weights{
      .quantity = "final weights", .worst = 0, .tolerance = tolerances.weight, .where = {}};
  auto wanted = expected.begin();
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].trained) continue;
    std::vector<float> weight(wanted->size());
    session.read_param(i, weight);
    double moved = distance(*wanted, initial[i]);
    double error = distance(weight, *wanted);
    note(weights, moved > 0 ? error / moved : error, params[i].name);
    ++wanted;
  }
  return {losses, norms, compare_gradients(run, gradients, initial, tolerances.gradient, comm),
          weights};
}

}  // namespace weft

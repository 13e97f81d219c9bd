// Trace against build: gradients of step 1, then all steps, then the final weights.
#include "train/verify.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "base/loss_scale.h"
#include "base/one_of.h"
#include "train/session.h"
#include "train/trace.h"
#include "train/validate_run.h"
#include "train/weights.h"

namespace weft {

namespace {

using Tensors = std::vector<std::vector<float>>;

Tensors load_tensors(const std::string& path, const ModelSpec& spec,
                     const std::vector<ParamInfo>& params) {
  Tensors tensors(params.size());
  load_weights(path, find_model(spec.model), params, [&](size_t i, std::span<const float> values) {
    tensors[i].assign(values.begin(), values.end());
  });
  return tensors;
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

// Keys that leave what is trained as the trace has it, and beginnings of them.
const std::vector<std::string> kOpenKeys = {"device.",
                                            "compile.",
                                            "activation_checkpoint.",
                                            "grad_scaler.",
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

Config trace_config(const Config& base, const Trace& trace) {
  Config config = base;
  config.training.local_batch_size = trace.batch;
  config.training.global_batch_size = -1;
  config.training.seq_len = trace.seq_len;
  config.training.max_norm = trace.optimizer.clip_norm;
  config.training.steps = static_cast<int64_t>(trace.losses.size());
  config.optimizer.lr = trace.optimizer.lr;
  config.optimizer.beta1 = trace.optimizer.beta1;
  config.optimizer.beta2 = trace.optimizer.beta2;
  config.optimizer.eps = trace.optimizer.eps;
  config.optimizer.weight_decay = trace.optimizer.weight_decay;
  config.validation.enable = false;
  return config;
}

void write_all(Session& session, const Tensors& weights) {
  for (size_t i = 0; i < weights.size(); ++i) session.write_param(i, weights[i]);
}

void fill(const Trace& trace, Batch& batch) {
  batch.tokens = trace.tokens;
  batch.targets = trace.targets;
}

// A gradient in f32, without the scale of the loss.
std::vector<float> read_gradient(Session& session, const std::string& param) {
  const std::string name = "grad." + param;
  const Tensor tensor = session.executor().bound(name);
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  if (tensor.dtype == DType::F32) {
    session.executor().read(name, values.data(), tensor.elements() * dtype_bytes(tensor.dtype));
  } else {
    CHECK(tensor.dtype == DType::BF16, name, " is ", dtype_name(tensor.dtype));
    std::vector<uint16_t> halves(values.size());
    session.executor().read(name, halves.data(), tensor.elements() * dtype_bytes(tensor.dtype));
    std::transform(halves.begin(), halves.end(), values.begin(), f32_from_bf16);
  }
  const auto scale = static_cast<float>(session.loss_scale().value_or(1));
  for (float& value : values) value /= scale;
  return values;
}

// One step of the trace; what only made the loss scale shrink is done again.
StepResult train_step(Session& session, const StepScalars& scalars, const Trace& trace) {
  while (true) {
    const StepResult result =
        session.train_step(scalars, [&](int64_t, Batch& batch) { fill(trace, batch); });
    const bool shrinks = result.loss_scale > kMinLossScale;
    if (std::isfinite(result.grad_norm) || !shrinks) return result;
  }
}

// The gradients of step 1, from a plan without the optimizer pass: it returns them as outputs.
Comparison compare_gradients(const std::string& folder, const Config& config, const Trace& trace,
                             const Tensors& initial, double tolerance) {
  Config without_update = config;
  without_update.compile.disable_passes.push_back("optimizer");
  Session session(without_update, compile(without_update, trace.spec));
  const auto& params = session.compiled().params;
  write_all(session, initial);
  session.forward_backward([&](int64_t, Batch& batch) { fill(trace, batch); });

  Tensors expected = load_tensors(folder + "/grads.safetensors", trace.spec, params);
  double square = 0;
  for (const auto& tensor : expected) square += norm(tensor) * norm(tensor);
  double floor = 1e-6 * std::sqrt(square);
  Comparison comparison{.quantity = "gradients", .worst = 0, .tolerance = tolerance, .where = {}};
  for (size_t i = 0; i < params.size(); ++i) {
    const std::vector<float> gradient = read_gradient(session, params[i].name);
    double error = distance(gradient, expected[i]) / std::max(norm(expected[i]), floor);
    note(comparison, error, params[i].name);
  }
  return comparison;
}

}  // namespace

std::vector<Comparison> verify_trace(const std::string& folder, const Config& base,
                                     const VerifyTolerances& tolerances) {
  check_keys(base);
  Trace trace = read_trace(folder);
  Config config = trace_config(base, trace);
  validate_run(config, 1);
  Compiled compiled = compile(config, trace.spec);
  Tensors initial = load_tensors(folder + "/model.safetensors", trace.spec, compiled.params);
  Tensors expected = load_tensors(folder + "/final.safetensors", trace.spec, compiled.params);
  check_weights(folder + "/grads.safetensors", find_model(trace.spec.model), compiled.params);
  Session session(config, std::move(compiled));
  const auto& params = session.compiled().params;
  write_all(session, initial);

  Comparison losses{.quantity = "losses", .worst = 0, .tolerance = tolerances.loss, .where = {}};
  Comparison norms{
      .quantity = "gradient norms", .worst = 0, .tolerance = tolerances.loss, .where = {}};
  for (size_t step = 0; step < trace.losses.size(); ++step) {
    const StepResult result = train_step(
        session, {.step = static_cast<int64_t>(step), .seed = 0, .lr = config.optimizer.lr}, trace);
    if (step == 0 && result.loss_scale) config.grad_scaler.init_scale = *result.loss_scale;
    std::string where = cat("step ", step + 1);
    note(losses, std::abs(result.loss / trace.losses[step] - 1), where);
    note(norms, std::abs(result.grad_norm / trace.grad_norms[step] - 1), where);
  }

  Comparison weights{
      .quantity = "final weights", .worst = 0, .tolerance = tolerances.weight, .where = {}};
  for (size_t i = 0; i < params.size(); ++i) {
    std::vector<float> weight(expected[i].size());
    session.read_param(i, weight);
    double moved = distance(expected[i], initial[i]);
    double error = distance(weight, expected[i]);
    note(weights, moved > 0 ? error / moved : error, params[i].name);
  }
  return {losses, norms, compare_gradients(folder, config, trace, initial, tolerances.gradient),
          weights};
}

}  // namespace weft

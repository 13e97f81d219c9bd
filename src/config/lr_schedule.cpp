#include "config/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft {
namespace {

// Falls from 1 at progress 0 to 0 at progress 1.
double decay_shape(DecayType type, double progress) {
  switch (type) {
    case DecayType::Linear:
      return 1.0 - progress;
    case DecayType::Sqrt:
      return 1.0 - std::sqrt(progress);
    case DecayType::Cosine:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    case DecayType::Constant:
      return 1.0;
  }
  return 1.0;
}

// Fraction of the peak rate. The decay starts at the peak and would end one step after the last
// step, so no step of the run has the end value.
double lr_factor(const Config& config, int64_t step) {
  const LrSchedulerConfig& schedule = config.lr_scheduler;
  if (step < schedule.warmup_steps) {
    return static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.decay_type == DecayType::Constant) {
    return 1.0;
  }
  const int64_t decay_steps = lr_decay_steps(config);
  const int64_t into_decay = step - (lr_total_steps(config) - decay_steps);
  if (into_decay <= 0) {
    return 1.0;
  }
  if (into_decay >= decay_steps) {
    return schedule.min_lr_factor;
  }
  const double progress = static_cast<double>(into_decay) / static_cast<double>(decay_steps);
  return schedule.min_lr_factor +
         (1.0 - schedule.min_lr_factor) * decay_shape(schedule.decay_type, progress);
}

}  // namespace

int64_t lr_total_steps(const Config& config) {
  return config.lr_scheduler.total_steps.value_or(config.training.steps);
}

int64_t lr_decay_steps(const Config& config) {
  const int64_t total = lr_total_steps(config);
  if (config.lr_scheduler.decay_ratio) {
    return std::llround(static_cast<double>(total) * *config.lr_scheduler.decay_ratio);
  }
  return std::max<int64_t>(total - config.lr_scheduler.warmup_steps, 0);
}

double learning_rate(const Config& config, int64_t step) {
  return config.optimizer.lr * lr_factor(config, step);
}

}  // namespace weft

// The learning rate as a pure function of the step: linear warmup, a constant phase when
// lr_scheduler.decay_ratio is set, then decay to min_lr_factor times the peak.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace weft {

// Step at which the decay ends: lr_scheduler.total_steps, or training.steps.
int64_t lr_total_steps(const Config& config);

// Number of steps that the decay takes.
int64_t lr_decay_steps(const Config& config);

// Learning rate of optimizer step `step`, counted from 0; constant after the end of the decay.
double learning_rate(const Config& config, int64_t step);

}  // namespace weft

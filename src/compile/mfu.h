// Model FLOPs utilization: the FLOPs that the model needs relative to the device's peak.
// docs/metrics.md defines both.
#pragma once

#include <optional>

#include "config/config.h"
#include "config/device_spec.h"
#include "model/model.h"
#include "runtime/device.h"

namespace weft {

// FLOPs per token that training needs.
double model_flops_per_token(const BuiltModel& model, const ModelSpec& spec,
                             const TrainingConfig& training);

// FLOP/s on the device's data sheet for the compute type of the config; nullopt if the spec has
// none.
std::optional<double> peak_flops(const Config& config, const DeviceSpec& spec);

// The same for an actual device: measured, or from its own data sheet, or from the spec's.
std::optional<double> peak_flops(const Config& config, const DeviceSpec& spec,
                                 const Device& device);

// Fraction of a rank's peak that its tokens per second use.
inline double model_flops_utilization(double flops_per_token, double tokens_per_second,
                                      double peak) {
  return flops_per_token * tokens_per_second / peak;
}

}  // namespace weft

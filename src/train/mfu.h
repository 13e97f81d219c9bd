// Model FLOPs utilization: what the model needs of what the device could do. docs/metrics.md says
// how both are counted.
#pragma once

#include <optional>

#include "config/config.h"
#include "config/device_spec.h"
#include "model/model.h"
#include "runtime/device.h"

namespace weft {

// FLOPs that training takes for each token.
double model_flops_per_token(const BuiltModel& model, const ModelSpec& spec,
                             const TrainingConfig& training);

// FLOP/s on the data sheet of a device in the type that the config computes in; nullopt where the
// spec has none.
std::optional<double> peak_flops(const Config& config, const DeviceSpec& spec);

// The same of a device that is there: measured, or from its own data sheet, or that of the spec.
std::optional<double> peak_flops(const Config& config, const DeviceSpec& spec,
                                 const Device& device);

// Share of a rank's peak that its tokens per second use.
inline double model_flops_utilization(double flops_per_token, double tokens_per_second,
                                      double peak) {
  return flops_per_token * tokens_per_second / peak;
}

}  // namespace weft

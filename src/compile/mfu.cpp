// The formulas of docs/metrics.md.
#include "compile/mfu.h"

namespace weft {

double model_flops_per_token(const BuiltModel& model, const ModelSpec& spec,
                             const TrainingConfig& training) {
  const double weights = 6.0 * static_cast<double>(num_multiplied_params(model));
  // The cost of attention within documents depends on the data.
  if (training.document_mask) return weights;
  const double width = static_cast<double>(spec.n_layers * spec.n_heads * spec.head_dim);
  return weights + 6 * width * static_cast<double>(training.seq_len);
}

std::optional<double> peak_flops(const Config& config, const DeviceSpec& spec) {
  const bool f32 = config.training.mixed_precision_param == Precision::Float32;
  // tf32 units have half the width of bf16 units.
  const double tf32 = spec.peak_flops_bf16 / 2;
  const double peak = !f32 ? spec.peak_flops_bf16 : config.device.tf32 ? tf32 : spec.peak_flops_f32;
  return peak > 0 ? std::optional(peak) : std::nullopt;
}

std::optional<double> peak_flops(const Config& config, const DeviceSpec& spec,
                                 const Device& device) {
  const bool bf16 = config.training.mixed_precision_param == Precision::Bfloat16;
  if (const auto measured = device.peak_flops(bf16 ? DType::BF16 : DType::F32)) return measured;
  const DeviceSpec* own = find_data_sheet(device.description());
  return peak_flops(config, own != nullptr ? *own : spec);
}

}  // namespace weft

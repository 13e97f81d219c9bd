// The formulas of docs/metrics.md.
#include "compile/mfu.h"

namespace weft {

namespace {

// The length of a sequence in which a query sees as many keys as in one that is divided into
// chunks.
double attended_length(int64_t seq_len, int64_t chunk) {
  if (chunk == 0 || chunk >= seq_len) return static_cast<double>(seq_len);
  const int64_t rest = seq_len % chunk;
  const int64_t pairs = seq_len / chunk * chunk * chunk + rest * rest;
  return static_cast<double>(pairs) / static_cast<double>(seq_len);
}

}  // namespace

double model_flops_per_token(const BuiltModel& model, const ModelSpec& spec,
                             const TrainingConfig& training) {
  const double weights = 6.0 * static_cast<double>(num_multiplied_params(model));
  // The cost of attention within documents depends on the data.
  if (training.document_mask) return weights;
  const int64_t values = spec.latent.kv_rank > 0 ? spec.latent.value_dim : spec.head_dim;
  const double width = static_cast<double>(spec.n_heads * (spec.head_dim + values)) / 2;
  double attention = 0;
  for (int64_t layer = 0; layer < spec.n_layers; ++layer) {
    attention +=
        6 * width * attended_length(training.seq_len, spec.attention_layers.chunk_of(layer));
  }
  return weights + attention;
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

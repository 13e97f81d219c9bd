#include "train/headline.h"

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "config/derived.h"
#include "plan/summary.h"
#include "plan/timing.h"
#include "train/run_folder.h"

namespace weft {
namespace {

std::string bytes_text(int64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

std::string weights_text(const Config& config, const std::string& resumed_from) {
  if (!resumed_from.empty()) return "from " + resumed_from;
  const std::string& path = config.checkpoint.initial_load_path;
  return path.empty() ? cat("random, seed ", config.debug.seed) : "from " + resolve_weights(path);
}

std::string precision_text(const Config& config) {
  switch (config.training.mixed_precision_param) {
    case Precision::Float32:
      return config.device.tf32 ? "float32 with tf32 matmuls" : "float32";
    case Precision::Bfloat16:
      return "bfloat16 with float32 master weights";
    case Precision::Float16:
      return "float16 with float32 master weights";
  }
  return "";
}

std::string batch_text(const Config& config, int64_t ranks) {
  const int64_t sequences = global_batch_size(config, degrees_of(config, ranks));
  const int64_t micro_batches = accumulation_steps(config, degrees_of(config, ranks));
  const int64_t planned = planned_seq_len(config, degrees_of(config, ranks));
  const bool padded = planned != config.training.seq_len;
  return cat(sequences, " sequences x ", config.training.seq_len,
             padded ? cat(" (padded to ", planned, ")") : "",
             " tokens = ", sequences * config.training.seq_len, " tokens per step",
             micro_batches > 1 ? cat(" in ", micro_batches, " micro-batches per rank") : "", ", ",
             precision_text(config));
}

// "dp_replicate 2 x dp_shard 4".
std::string axes_text(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> items;
  for (const MeshAxis& axis : axes) items.push_back(cat(axis.name, " ", axis.size));
  return join(items, " x ");
}

// "8: dp_replicate 2 x dp_shard 4, experts: edp 2 x ep 2".
std::string ranks_text(const Mesh& mesh) {
  return cat(mesh.ranks(), mesh.axes.empty() ? "" : ": ", axes_text(mesh.axes),
             mesh.expert_axes.empty() ? "" : ", experts: ", axes_text(mesh.expert_axes));
}

std::string memory_text(const Compiled& compiled) {
  const Plan& plan = compiled.plan;
  const Replanning& replanning = compiled.replanning;
  int64_t shared = 0;
  for (const SharedSpace& space : plan.shared) shared += space.bytes;
  return cat(bytes_text(plan.arena_bytes), " planned", plan.mesh.ranks() > 1 ? " per rank" : "",
             shared > 0 ? cat(", ", bytes_text(shared), " shared per host") : "",
             replanning.times > 0 ? "; " + to_string(replanning) : "");
}

double validation_seconds(const Config& config, const Compiled& compiled) {
  const ValidationConfig& validation = config.validation;
  if (!validation.enable) return 0;
  const int64_t steps = config.training.steps;
  const int64_t times = (steps + validation.freq - 1) / validation.freq;
  const int64_t batches =
      validation.steps * validation_slots(config, degrees_of(config, compiled.plan.mesh.ranks()));
  return static_cast<double>(times * batches) *
         program_time(compiled.plan, ProgramKind::Eval).seconds;
}

// Rates in a file were measured here; built-in rates are those of another machine.
std::string time_text(const Config& config, const Compiled& compiled) {
  const double step = compiled.estimate.seconds;
  const int64_t steps = config.training.steps;
  const double run = step * static_cast<double>(steps) + validation_seconds(config, compiled);
  const std::vector<std::string> built_in = device_spec_names();
  const bool is_file =
      config.device.spec != "auto" &&
      std::find(built_in.begin(), built_in.end(), config.device.spec) == built_in.end();
  return cat(short_time(step), " per step, ", human_duration(run), " for ", steps,
             steps == 1 ? " step (" : " steps (",
             is_file ? cat("predicted from ", config.device.spec)
                     : cat("rough: from the built-in rates of ", compiled.device.name,
                           "; weft bench --calibrate measures this machine"),
             ")");
}

// Whether a folder provides the sizes and could provide the weights.
bool leaves_weights(const Config& config) {
  const std::string& folder = config.model.flavor;
  return config.checkpoint.initial_load_path.empty() && folder.find('/') != std::string::npos &&
         (path_exists(folder + "/model.safetensors") ||
          path_exists(folder + "/model.safetensors.index.json"));
}

}  // namespace

std::string describe_model(const ModelSpec& spec, int64_t parameters) {
  return cat(spec.model, " ", spec.flavor, ": ", human_count(static_cast<double>(parameters)),
             " parameters, ", spec.n_layers, " layers, ", spec.dim, " wide, ", spec.n_heads,
             " heads, ", spec.vocab_size, " token ids");
}

std::vector<std::string> headline(const Config& config, const Compiled& compiled,
                                  const std::string& resumed_from) {
  const Mesh& mesh = compiled.plan.mesh;
  std::vector<std::string> lines = {
      cat("model    ", describe_model(compiled.spec, num_params(compiled.params))),
      cat("weights  ", weights_text(config, resumed_from)),
      cat("batch    ", batch_text(config, mesh.ranks())),
      cat("ranks    ", ranks_text(mesh)),
      cat("memory   ", memory_text(compiled)),
      cat("time     ", time_text(config, compiled)),
  };
  if (resumed_from.empty() && leaves_weights(config)) {
    lines.push_back(cat("WARNING  ", describe_key(config, "model.flavor"),
                        " gives sizes only, so the weights are random; to start from those in the "
                        "folder, add --checkpoint.initial_load_path=",
                        config.model.flavor));
  }
  const std::string slow = mesh_warning(compiled);
  if (!slow.empty()) lines.push_back("WARNING  " + slow);
  return lines;
}

}  // namespace weft

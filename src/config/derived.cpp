#include "config/derived.h"

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "config/schema.h"

namespace weft {

Degrees degrees_of(const Config& config, int64_t ranks) {
  const ParallelismConfig& parallelism = config.parallelism;
  Degrees degrees{.dp_replicate = parallelism.data_parallel_replicate_degree,
                  .dp_shard = parallelism.data_parallel_shard_degree,
                  .cp = parallelism.context_parallel_degree,
                  .tp = parallelism.tensor_parallel_degree,
                  .ep = parallelism.expert_parallel_degree};
  if (degrees.dp_shard == -1) {
    degrees.dp_shard = ranks / (degrees.dp_replicate * degrees.cp * degrees.tp);
  }
  return degrees;
}

int64_t planned_seq_len(const Config& config, const Degrees& degrees) {
  const int64_t length = config.training.seq_len;
  if (degrees.cp == 1) return length;
  const int64_t sharing = config.parallelism.sequence_parallel ? degrees.tp : 1;
  const int64_t unit = degrees.cp * std::lcm<int64_t>(2, sharing);
  return (length + unit - 1) / unit * unit;
}

double expert_capacity(const Config& config, const Degrees& degrees) {
  const double usual = config.device.backend == "cuda" ? 2 : 0;
  const double factor = config.parallelism.expert_capacity_factor.value_or(usual);
  return factor < static_cast<double>(degrees.ep) ? factor : 0;
}

int64_t tokens_per_rank(const Config& config, const Degrees& degrees) {
  const int64_t tokens = planned_seq_len(config, degrees) / degrees.cp;
  const bool shares = config.parallelism.sequence_parallel && tokens % degrees.tp == 0;
  return shares ? tokens / degrees.tp : tokens;
}

bool is_elastic(const Config& config) {
  return config.debug.deterministic == Determinism::Elastic;
}

bool orders_sums(const Config& config) {
  return config.comm.reduction == Reduction::Ordered || is_elastic(config);
}

int64_t global_batch_size(const Config& config, const Degrees& degrees) {
  const TrainingConfig& training = config.training;
  const int64_t micro_batches =
      is_elastic(config) ? config.debug.elastic_shards : degrees.batch_ranks();
  return training.global_batch_size == -1 ? training.local_batch_size * micro_batches
                                          : training.global_batch_size;
}

int64_t accumulation_steps(const Config& config, const Degrees& degrees) {
  return global_batch_size(config, degrees) /
         (config.training.local_batch_size * degrees.batch_ranks());
}

bool reduces_once(const Config& config, const Degrees& degrees) {
  return accumulation_steps(config, degrees) > 1 &&
         (config.parallelism.zero_stage == 1 || !config.training.reduce_every_micro_batch);
}

int64_t global_micro_batch(const Config& config, const Degrees& degrees, const RankSlot& at) {
  const int64_t rank = degrees.batch_rank(at.rank);
  if (is_elastic(config) && reduces_once(config, degrees)) {
    return rank * accumulation_steps(config, degrees) + at.slot;
  }
  return at.slot * degrees.batch_ranks() + rank;
}

int64_t validation_slots(const Config& config, const Degrees& degrees) {
  return is_elastic(config) ? accumulation_steps(config, degrees) : 1;
}

bool scales_loss(const Config& config) {
  return config.training.mixed_precision_param == Precision::Float16;
}

std::vector<TrainingFile> training_files(const Config& config) {
  const TrainingConfig& training = config.training;
  if (training.dataset == Dataset::Synthetic) return {};
  if (training.dataset_mix.empty()) return {{training.dataset_path, 1.0}};
  std::vector<TrainingFile> files;
  for (const std::string& entry : training.dataset_mix) {
    const size_t equals = entry.rfind('=');
    const std::optional<double> weight =
        equals == std::string::npos ? std::nullopt
                                    : parse_double(std::string_view(entry).substr(equals + 1));
    USER_CHECK(weight && equals > 0 && *weight > 0 && std::isfinite(*weight),
               describe_key(config, "training.dataset_mix"), ": ", in_quotes(entry),
               " is not of the form \"path=weight\" with a weight above 0");
    files.push_back({entry.substr(0, equals), *weight});
  }
  return files;
}

SelectiveOption selective_option(const Config& config) {
  constexpr std::string_view kFrom = "from:";
  const std::string_view text = config.activation_checkpoint.selective_ac_option;
  if (text == "op") {
    return {.kind = SelectiveOption::Kind::ByOp, .block = 0};
  }
  const bool from = text.substr(0, kFrom.size()) == kFrom;
  const std::optional<int64_t> number = parse_int(from ? text.substr(kFrom.size()) : text);
  USER_CHECK(number && *number >= (from ? 0 : 1),
             describe_key(config, "activation_checkpoint.selective_ac_option"),
             " is unknown, expected \"op\", \"from:K\" or a number of at least 1");
  return {.kind = from ? SelectiveOption::Kind::FromBlock : SelectiveOption::Kind::EveryKth,
          .block = *number};
}

std::string describe_key(const Config& config, std::string_view key) {
  const auto at = config.set_by_user.find(std::string(key));
  if (at != config.set_by_user.end()) {
    return at->second;
  }
  const Key<Config>* known = find_config_key(key);
  CHECK(known != nullptr, key);
  const ConfigValue value = known->get(config);
  const bool unset = std::holds_alternative<std::monostate>(value);
  return unset ? std::string(key) : cat(key, " = ", value_to_toml(value));
}

}  // namespace weft

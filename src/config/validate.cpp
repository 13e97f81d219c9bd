#include "config/validate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/one_of.h"
#include "base/text.h"
#include "config/derived.h"
#include "config/lr_schedule.h"
#include "config/schema.h"

namespace weft {
namespace {

constexpr double kMaxSteps = 1e9;

std::string rank_count(int64_t ranks) {
  return cat(ranks, ranks == 1 ? " rank" : " ranks");
}

// "1, 2 or 4": the divisors of `number`, after the values in `first`.
std::string divisors_text(int64_t number, std::vector<std::string> first = {}) {
  for (int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) {
      first.push_back(cat(d));
    }
  }
  return one_of(first);
}

void check_members(const Config& config, const ConfigChoices& sets) {
  for (const Choices& set : sets) {
    std::vector<std::string> names;
    for (const Choices::Member& member : set.members) {
      names.emplace_back(member.name);
    }
    const ConfigValue value = find_config_key(set.key)->get(config);
    const bool known =
        std::find(names.begin(), names.end(), std::get<std::string>(value)) != names.end();
    USER_CHECK(known, describe_key(config, set.key), " is unknown, expected ",
               choices_phrase(names));
  }
}

void check_effects(const Config& config, int64_t ranks, const ConfigChoices& sets) {
  const Config defaults;
  for (const Key<Config>& key : config_keys()) {
    const auto given = config.set_by_user.find(key.name);
    if (given == config.set_by_user.end() || has_effect(key, config, ranks, sets) ||
        key.get(config) == key.get(defaults)) {
      continue;
    }
    throw UserError(ExitCode::Config, cat(given->second, " has no effect: it needs ",
                                          needs_phrase(key, sets), "; remove the key"));
  }
}

// The degrees must divide the ranks, innermost axis first; dp_shard takes what is left.
void check_ranks(const Config& config, int64_t ranks) {
  const ParallelismConfig& parallelism = config.parallelism;
  const struct {
    std::string key;
    int64_t degree;
  } fixed[] = {
      {"parallelism.tensor_parallel_degree", parallelism.tensor_parallel_degree},
      {"parallelism.context_parallel_degree", parallelism.context_parallel_degree},
      {"parallelism.data_parallel_replicate_degree", parallelism.data_parallel_replicate_degree}};
  int64_t left = ranks;
  std::vector<std::string> taken;
  for (const auto& [key, degree] : fixed) {
    USER_CHECK(ranks % degree == 0, describe_key(config, key), " does not divide ",
               rank_count(ranks), "; use ", divisors_text(left));
    USER_CHECK(left % degree == 0, describe_key(config, key), " and ", join(taken, " and "),
               " multiply to ", degree * (ranks / left), ", which does not divide ",
               rank_count(ranks), "; use ", key, " = ", std::gcd(left, degree));
    left /= degree;
    if (degree > 1) taken.push_back(cat(key, " = ", degree));
  }
  const std::string shard_key = "parallelism.data_parallel_shard_degree";
  const int64_t shard = parallelism.data_parallel_shard_degree;
  USER_CHECK(shard == -1 || ranks % shard == 0, describe_key(config, shard_key),
             " does not divide ", rank_count(ranks), "; use -1 or ", left);
  if (taken.empty()) taken.push_back(cat(fixed[2].key, " = 1"));
  USER_CHECK(shard == -1 || shard == left, describe_key(config, shard_key), " and ",
             join(taken, " and "), " multiply to ", shard * (ranks / left), ", expected ",
             rank_count(ranks), "; use ", shard_key, " = -1");
}

// The ranks that share experts are among those that share one copy of the parameters.
void check_expert_degree(const Config& config, const Degrees& degrees) {
  const int64_t inner = degrees.dp_shard * degrees.cp * degrees.tp;
  USER_CHECK(inner % degrees.ep == 0, describe_key(config, "parallelism.expert_parallel_degree"),
             " does not divide the ", rank_count(inner),
             " that share one copy of the parameters; use ", divisors_text(inner));
}

bool is_power_of_two(int64_t number) {
  return (number & (number - 1)) == 0;
}

// The conditions under which sums over ranks and micro-batches form the same binary tree on any
// number of ranks. Groups of ranks divide the ranks, so all of their sizes are powers of two.
void check_elastic(const Config& config, const Degrees& degrees) {
  if (!is_elastic(config)) {
    return;
  }
  const int64_t shards = config.debug.elastic_shards;
  const std::string key = describe_key(config, "debug.elastic_shards");
  int64_t below = 1;
  while (below * 2 < shards) {
    below *= 2;
  }
  USER_CHECK(is_power_of_two(shards), key, " is not a power of two; use ", below, " or ",
             2 * below);
  const int64_t ranks = degrees.batch_ranks();
  USER_CHECK(shards % ranks == 0, key, " is not a multiple of ", rank_count(ranks), "; use ",
             divisors_text(shards), " ranks");
  const int64_t global = shards * config.training.local_batch_size;
  USER_CHECK(global_batch_size(config, degrees) == global,
             describe_key(config, "training.global_batch_size"),
             " is not debug.elastic_shards x training.local_batch_size = ", global, "; use ",
             global, " or -1");
  USER_CHECK(config.training.mixed_precision_reduce == Precision::Float32,
             describe_key(config, "training.mixed_precision_reduce"),
             " rounds what ranks send but not what one rank sums, expected \"float32\" with "
             "debug.deterministic = \"elastic\"");
  USER_CHECK(degrees.ep == 1 || !reduces_once(config, degrees),
             describe_key(config, "parallelism.expert_parallel_degree"),
             " sums over ranks in every micro-batch, expected the same of all sums with "
             "debug.deterministic = \"elastic\"; ",
             config.parallelism.zero_stage ? "remove parallelism.zero_stage"
                                           : "use training.reduce_every_micro_batch = true");
  USER_CHECK(config.training.router_aux_loss == 0, describe_key(config, "training.router_aux_loss"),
             " counts the tokens of a micro-batch over all ranks, expected 0 with "
             "debug.deterministic = \"elastic\"");
}

void check_batch(const Config& config, const Degrees& degrees) {
  const int64_t micro = config.training.local_batch_size * degrees.batch_ranks();
  const int64_t global = global_batch_size(config, degrees);
  const std::string larger =
      global < micro ? "a multiple of it" : cat((global / micro + 1) * micro);
  USER_CHECK(global % micro == 0, describe_key(config, "training.global_batch_size"),
             " is not a multiple of training.local_batch_size x ",
             degrees.batch_ranks() == degrees.ranks() ? "ranks" : "data-parallel ranks", " = ",
             micro, "; use ", std::max(global / micro, int64_t{1}) * micro, " or ", larger);
}

// Factors that are powers of two scale without rounding.
void check_scaler(const Config& config) {
  const auto check = [&](const char* key, double value) {
    int exponent = 0;
    USER_CHECK(std::frexp(value, &exponent) == 0.5, describe_key(config, key),
               " is not a power of two; use ",
               value_to_toml(std::ldexp(1.0, value > 2 || value < 1 ? exponent - 1 : exponent)));
  };
  check("grad_scaler.init_scale", config.grad_scaler.init_scale);
  check("grad_scaler.growth_factor", config.grad_scaler.growth_factor);
  check("grad_scaler.backoff_factor", config.grad_scaler.backoff_factor);
}

// Ranks that share a sequence take chunks of their own tokens.
void check_loss_chunks(const Config& config, const Degrees& degrees) {
  const int64_t length = config.training.seq_len, own = tokens_per_rank(config, degrees);
  const std::string key = describe_key(config, "training.loss_chunks");
  USER_CHECK(own != length || length % config.training.loss_chunks == 0, key,
             " does not divide training.seq_len = ", length, "; use a divisor of it");
  USER_CHECK(own % config.training.loss_chunks == 0, key, " does not divide the ", own,
             " tokens of a sequence that each rank has; use a divisor of it");
}

// A step subtracts lr x weight_decay of a weight; a factor above 1 would make weights grow.
void check_optimizer(const Config& config) {
  const double lr = config.optimizer.lr;
  const double decay = config.optimizer.weight_decay;
  const std::string found = lr > 1 ? cat(describe_key(config, "optimizer.lr"),
                                         " x optimizer.weight_decay = ", format_double(decay))
                                   : cat(describe_key(config, "optimizer.weight_decay"),
                                         " x optimizer.lr = ", format_double(lr));
  USER_CHECK(lr * decay <= 1, found, " is above 1, so weights would grow; use a ",
             lr > 1 ? cat("learning rate of at most ", format_double(1 / decay))
                    : cat("weight decay of at most ", format_double(std::floor(1 / lr))));
}

// Changes, each sufficient on its own, that make warmup and decay fit into the steps.
std::string fitting_schedule(const Config& config) {
  const LrSchedulerConfig& schedule = config.lr_scheduler;
  const int64_t total = lr_total_steps(config);
  std::vector<std::string> choices;
  const double share = 1 - static_cast<double>(schedule.warmup_steps) / static_cast<double>(total);
  const double thousandths = std::floor(share * 1000) / 1000;
  if (thousandths > 0) {
    choices.push_back(cat("lr_scheduler.decay_ratio = ", format_double(thousandths)));
  }
  choices.push_back(cat("lr_scheduler.warmup_steps = ", total - lr_decay_steps(config)));
  const double steps = static_cast<double>(schedule.warmup_steps) / (1 - *schedule.decay_ratio);
  if (steps < kMaxSteps) {
    Config longer = config;
    longer.lr_scheduler.total_steps = static_cast<int64_t>(steps);
    // The decay is rounded to full steps.
    while (schedule.warmup_steps + lr_decay_steps(longer) > lr_total_steps(longer)) {
      ++*longer.lr_scheduler.total_steps;
    }
    const char* key = schedule.total_steps ? "lr_scheduler.total_steps" : "training.steps";
    choices.push_back(cat(key, " = ", lr_total_steps(longer)));
  }
  return one_of(choices);
}

void check_schedule(const Config& config) {
  const LrSchedulerConfig& schedule = config.lr_scheduler;
  if (!schedule.decay_ratio) {
    return;
  }
  const int64_t decay = lr_decay_steps(config);
  const int64_t total = lr_total_steps(config);
  USER_CHECK(schedule.warmup_steps + decay <= total,
             describe_key(config, "lr_scheduler.decay_ratio"), " decays over ", decay,
             " steps after lr_scheduler.warmup_steps = ", schedule.warmup_steps,
             ", expected at most ", total, " steps together; use ", fitting_schedule(config));
}

void check_data(const Config& config) {
  const bool file = config.training.dataset == Dataset::File;
  const bool mix = !config.training.dataset_mix.empty();
  USER_CHECK(!file || mix || !config.training.dataset_path.empty(),
             describe_key(config, "training.dataset"),
             " needs training.dataset_path; set it to a token file made by weft data prepare");
  USER_CHECK(!file || !mix || config.training.dataset_path.empty(),
             describe_key(config, "training.dataset_mix"),
             " conflicts with training.dataset_path; use one of them");
  training_files(config);
  USER_CHECK(!config.validation.enable || !file || !config.validation.dataset_path.empty(),
             describe_key(config, "validation.enable"),
             " needs validation.dataset_path; set it to a token file made by weft data prepare");
}

// These become paths; an empty one would write into the working directory.
void check_folders(const Config& config) {
  USER_CHECK(!config.job.dump_folder.empty(), describe_key(config, "job.dump_folder"),
             " is empty, expected a folder");
  USER_CHECK(!config.checkpoint.enable || !config.checkpoint.folder.empty(),
             describe_key(config, "checkpoint.folder"),
             " is empty, expected a folder; use checkpoint.enable = false to save nothing");
}

void check_compile(const Config& config) {
  USER_CHECK(config.compile.bucketing != BucketingMode::Manual || !config.compile.buckets.empty(),
             describe_key(config, "compile.bucketing"),
             " needs compile.buckets; list module paths, such as [\"tok_embeddings\", "
             "\"layers.*\", \"norm+output\"]");
  for (const std::string& entry : config.compile.overlap_with) {
    const size_t equals = entry.find('=');
    USER_CHECK(equals != std::string::npos && equals > 0 && equals + 1 < entry.size(),
               describe_key(config, "compile.overlap_with"), ": ", in_quotes(entry),
               " is not of the form \"bucket=module\"");
  }
}

}  // namespace

void validate(const Config& config, int64_t ranks, const ConfigChoices& sets) {
  CHECK(ranks >= 1, ranks);
  check_members(config, sets);
  check_effects(config, ranks, sets);
  check_ranks(config, ranks);
  const Degrees degrees = degrees_of(config, ranks);
  check_expert_degree(config, degrees);
  check_elastic(config, degrees);
  check_batch(config, degrees);
  check_scaler(config);
  check_loss_chunks(config, degrees);
  check_optimizer(config);
  check_schedule(config);
  check_data(config);
  check_folders(config);
  check_compile(config);
  if (config.activation_checkpoint.mode == RecomputeMode::Selective) {
    selective_option(config);
  }
}

}  // namespace weft

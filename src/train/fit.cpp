// Compiles one alternative after the other.
#include "train/fit.h"

#include "base/error.h"
#include "config/validate.h"

namespace weft {
namespace {

constexpr int64_t kMostRanks = 1024;

struct Candidate {
  std::string change;
  Config config;
  int64_t ranks = 1;
};

// Every block recomputed; what else the user said about recomputation no longer counts.
Config recompute_all(Config config) {
  config.activation_checkpoint.mode = RecomputeMode::Full;
  std::erase_if(config.set_by_user, [](const auto& entry) {
    return entry.first.starts_with("activation_checkpoint.");
  });
  return config;
}

std::vector<Candidate> candidates(Config config, int64_t ranks) {
  config.compile.dump_folder.clear();
  config.compile.dump_passes.clear();
  std::vector<Candidate> list;
  if (config.training.keep_low_precision) {
    config.training.keep_low_precision = false;
    list.push_back({"--training.keep_low_precision=false", config, ranks});
    config.training.keep_low_precision = true;
  }
  if (config.activation_checkpoint.mode != RecomputeMode::Full) {
    list.push_back({"--activation_checkpoint.mode=full", recompute_all(config), ranks});
  }
  for (const int64_t times : {2, 4, 8}) {
    if (ranks * times > kMostRanks) break;
    list.push_back({cat("--ranks ", ranks * times), config, ranks * times});
  }
  const int64_t batch = config.training.local_batch_size;
  if (batch % 2 == 0) {
    config.training.local_batch_size = batch / 2;
    list.push_back({cat("--training.local_batch_size=", batch / 2), config, ranks});
  }
  return list;
}

}  // namespace

std::optional<Alternative> find_alternative(const Config& config, const ModelSpec& spec,
                                            int64_t ranks) {
  std::optional<Alternative> smallest;
  for (const Candidate& candidate : candidates(config, ranks)) {
    try {
      validate(candidate.config, candidate.ranks);
      const Compiled compiled = compile(candidate.config, spec, candidate.ranks);
      const int64_t bytes = rank_bytes(compiled.plan);
      const Alternative found{candidate.change, bytes, bytes <= memory_limit(compiled)};
      if (found.fits) return found;
      if (!smallest || bytes < smallest->rank_bytes) smallest = found;
    } catch (const UserError&) {
      // The rest of the config does not allow this one.
      continue;
    }
  }
  return smallest;
}

}  // namespace weft

// Compiles one alternative after the other.
#include "compile/fit.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "compile/config_choices.h"
#include "config/validate.h"

namespace weft {
namespace {

constexpr int64_t kMaxRanks = 1024;
constexpr int64_t kLossChunks = 8;  // enough to make logits a small part of a step's memory

struct Candidate {
  std::string change;
  Config config;
  int64_t ranks = 1;
};

// Recomputes every block; other recomputation settings of the user no longer apply.
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
  const std::string chunks = cat("--training.loss_chunks=", kLossChunks);
  Config chunked = config;
  chunked.training.loss_chunks = kLossChunks;
  const bool can_chunk = config.training.loss_chunks == 1;
  if (can_chunk) list.push_back({chunks, chunked, ranks});
  if (config.activation_checkpoint.mode != RecomputeMode::Full) {
    const std::string full = "--activation_checkpoint.mode=full";
    list.push_back({full, recompute_all(config), ranks});
    if (can_chunk) list.push_back({cat(full, " ", chunks), recompute_all(chunked), ranks});
  }
  for (const int64_t times : {2, 4, 8}) {
    if (ranks * times > kMaxRanks) break;
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

int64_t FreeMemory::of_rank(const Compiled& compiled) const {
  const int64_t ranks = compiled.plan.mesh.ranks();
  const int64_t own = bytes / (shared ? ranks : 1);
  return std::max<int64_t>(0, own - (ranks > 1 ? compiled.device.collectives_bytes : 0));
}

std::optional<Alternative> find_alternative(const Config& config, const ModelSpec& spec,
                                            int64_t ranks, const MemoryLimit& limit) {
  std::optional<Alternative> smallest;
  std::set<int64_t> too_few;  // ranks whose states alone exceed the limit
  for (const Candidate& candidate : candidates(config, ranks)) {
    if (too_few.contains(candidate.ranks)) continue;
    try {
      validate(candidate.config, candidate.ranks, config_choices());
      const Compiled compiled = compile(candidate.config, spec, candidate.ranks);
      const int64_t bytes = rank_bytes(compiled.plan);
      const int64_t most = limit(compiled);
      const Alternative found{candidate.change, bytes, bytes <= most};
      if (found.fits) return found;
      if (compiled.plan.persistent_bytes > most) too_few.insert(candidate.ranks);
      if (!smallest || bytes < smallest->rank_bytes) smallest = found;
    } catch (const UserError&) {
      // The rest of the config does not allow this change.
      continue;
    }
  }
  return smallest;
}

std::string advice(const std::optional<Alternative>& found) {
  if (!found) return "use a smaller model or shorter sequences";
  return cat(found->fits ? "" : "no alternative fits; closest: ", found->change, " needs ",
             human_bytes(static_cast<double>(found->rank_bytes)),
             found->change.starts_with("--ranks") ? " per rank" : "");
}

}  // namespace weft

// What a run must know to continue, besides its tensors: how far it is and what it was made with.
// The position in the data is the number of steps done: a batch is a pure function of seed, step
// and sample.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "config/config.h"
#include "plan/plan.h"

namespace weft {

inline constexpr std::string_view kTrainingStateName = "training_state.json";
inline constexpr std::string_view kConfigName = "config.toml";

struct TrainingState {
  int64_t step = 0;                // optimizer steps done
  int64_t samples = 0;             // sequences trained on
  int64_t skipped = 0;             // steps without an update, because they were not finite
  int64_t nonfinite_in_a_row = 0;  // of these, at the end, that no smaller loss scale can fix
  bool validation_due = false;     // the run ended before it could validate after this step
  int64_t seed = 0;
  int64_t ranks = 1;
  std::string mesh;       // "dp_replicate=2 dp_shard=4"; empty: one rank
  std::string tokenizer;  // its identity; empty: unknown
  std::string backend;
  bool operator==(const TrainingState&) const = default;
};

std::string to_json(const TrainingState& state);
TrainingState parse_training_state(std::string_view text, const std::string& where);

// "dp_replicate=2 dp_shard=4".
std::string mesh_text(const Mesh& mesh);

}  // namespace weft

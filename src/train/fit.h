// What would make a plan fit that does not: found by compiling the alternatives, not by a formula.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/compile.h"

namespace weft {

// A change to a run, and the memory that a rank of its plan needs.
struct Alternative {
  std::string change;  // as the user would write it: "--ranks 16"
  int64_t rank_bytes = 0;
  bool fits = false;
};

// The first that fits of: every block recomputed, twice, 4 and 8 times the ranks (up to 1024), half
// the local batch. When none does, the smallest; nothing when the config allows none of them.
std::optional<Alternative> find_alternative(const Config& config, const ModelSpec& spec,
                                            int64_t ranks);

}  // namespace weft

// Finds changes that make a plan fit, by compiling the alternatives rather than by a formula.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "compile/compile.h"

namespace weft {

// A change to a run, and the memory per rank that its plan needs.
struct Alternative {
  std::string change;  // as the user would write it: "--ranks 16"
  int64_t rank_bytes = 0;
  bool fits = false;
};

// Bytes that each rank of the plan may use.
using MemoryLimit = std::function<int64_t(const Compiled& compiled)>;

// The free memory of a rank's device. Ranks that share the device divide it, and the collectives
// library takes its part from each.
struct FreeMemory {
  int64_t bytes = 0;
  bool shared = false;

  int64_t of_rank(const Compiled& compiled) const;
};

// The first one that fits of: weights not kept in two types, head and loss in chunks, every block
// recomputed, both of these, 2, 4 and 8 times the ranks (up to 1024), half the local batch. If none
// fits, the smallest; nullopt when the config allows none of them.
std::optional<Alternative> find_alternative(const Config& config, const ModelSpec& spec,
                                            int64_t ranks, const MemoryLimit& limit = memory_limit);

// The advice at the end of a message: "--ranks 4 needs 3 GiB per rank".
std::string advice(const std::optional<Alternative>& found);

}  // namespace weft

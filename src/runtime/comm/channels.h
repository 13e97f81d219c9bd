// Channels keep collectives and heartbeats of concurrent threads apart: channel i belongs to stream
// i of a plan, the last one to the host thread. The memory that ranks share is laid out before any
// of them has a plan, so it has a channel for every stream that a plan can have.
#pragma once

#include <cstdint>
#include <iterator>

#include "plan/plan.h"

namespace weft {

inline constexpr int64_t kHostChannel = std::ssize(kStreamNames);
inline constexpr int64_t kChannels = kHostChannel + 1;

}  // namespace weft

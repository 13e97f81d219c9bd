// Host work on many elements, split over this rank's cores of the host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/machine.h"
#include "base/parallel.h"

namespace weft {

// Calls work(first, elements) for chunks of `elements`.
template <class Work>
void in_chunks(int64_t elements, int64_t ranks_on_host, Work work) {
  constexpr int64_t kChunk = 1 << 18;
  const int64_t threads = std::max<int64_t>(1, usable_cores() / ranks_on_host);
  const auto chunks = static_cast<size_t>((elements + kChunk - 1) / kChunk);
  parallel_for(static_cast<int>(threads), chunks, [&](int, size_t chunk) {
    const int64_t first = static_cast<int64_t>(chunk) * kChunk;
    work(static_cast<size_t>(first), static_cast<size_t>(std::min(kChunk, elements - first)));
  });
}

}  // namespace weft

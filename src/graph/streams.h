// The streams of a plan, in its order. Started collectives overlap with compute; everything else
// runs on the compute stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

enum class StreamId { Compute, Gather, Reduce, Exchange };
inline constexpr std::array<std::string_view, 4> kStreamNames = {"compute", "gather", "reduce",
                                                                 "exchange"};

constexpr std::string_view stream_name(StreamId stream) {
  return kStreamNames[static_cast<size_t>(stream)];
}

// The stream's place in the list of a plan.
constexpr int64_t index_of(StreamId stream) {
  return static_cast<int64_t>(stream);
}

}  // namespace weft

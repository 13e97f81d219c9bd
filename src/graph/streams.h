// The streams of a plan, in its order. Started collectives overlap with compute; everything else
// runs on the compute stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

// Gather and Reduce transfer parameters and their gradients. Activations have a stream of their
// own, so that they do not queue behind a bucket that is sent ahead of its use.
enum class StreamId { Compute, Gather, Reduce, Activation };
inline constexpr std::array<std::string_view, 4> kStreamNames = {"compute", "gather", "reduce",
                                                                 "activation"};

constexpr std::string_view stream_name(StreamId stream) {
  return kStreamNames[static_cast<size_t>(stream)];
}

// The stream's place in the list of a plan.
constexpr int64_t index_of(StreamId stream) {
  return static_cast<int64_t>(stream);
}

}  // namespace weft

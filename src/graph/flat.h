// How tensors lie in a flat buffer: one after the other, each starting on a block of kFlatBlock
// elements, so that a cut between blocks never depends on what the members are. Padding is zero.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/type.h"

namespace weft {

// Elements of a flat buffer that holds tensors of these shapes, padding of the last one included.
int64_t flat_size(std::span<const Shape> shapes);

// First element of each tensor in the flat buffer.
std::vector<int64_t> flat_offsets(std::span<const Shape> shapes);

// How states of a bucket are named ("m." before it): its one member, or the first one and how many
// follow it: "layers.0.attention_norm.weight+5".
std::string bucket_name(std::span<const std::string> members);

// Before the name of a parameter or bucket: the state that holds it in the compute type, with the
// same layout, and is derived from it.
inline constexpr std::string_view kLowPrefix = "low.";

}  // namespace weft

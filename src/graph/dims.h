// Names of dims. A model says what the dims of its parameters and inputs mean, never where they
// lie; the names of all other values follow from the sharding rules of the ops, and the names fix
// the placements (passes/place.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::dims {

inline constexpr std::string_view kBatch = "batch";
inline constexpr std::string_view kSequence = "sequence";
inline constexpr std::string_view kEmbed = "embed";
inline constexpr std::string_view kHeads = "heads";
// Heads that are repeated before they are sharded (repeat_kv): the weight itself is not.
inline constexpr std::string_view kHeadsToRepeat = "heads_to_repeat";
// One head; never sharded.
inline constexpr std::string_view kHeadDim = "head_dim";
// What latent attention computes heads from; belongs to no head and is never sharded.
inline constexpr std::string_view kLatent = "latent";
inline constexpr std::string_view kFfn = "ffn";
inline constexpr std::string_view kVocab = "vocab";
// Experts that a rank computes, and those that a token may choose; the latter are never sharded.
inline constexpr std::string_view kExperts = "experts";
inline constexpr std::string_view kChoices = "choices";
// The ranks whose tokens are sent to experts.
inline constexpr std::string_view kSources = "sources";
// Rows of a table of learned positions; never sharded.
inline constexpr std::string_view kPositions = "positions";

// A dim that holds several parts one after the other, such as q|k|v: "heads(64|32|32)". Sharding
// such a dim shards each part.
std::string packed(std::string_view name, const std::vector<int64_t>& parts);

// "heads" of "heads(64|32|32)".
std::string_view name_of(std::string_view dim);
// {64, 32, 32} of "heads(64|32|32)"; empty for a dim that is not packed.
std::vector<int64_t> parts_of(std::string_view dim);

}  // namespace weft::dims

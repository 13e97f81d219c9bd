// Layout of tensors in a flat buffer: one after the other, each aligned to kFlatBlock elements, so
// that shard boundaries do not depend on the members. Padding is zero.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/type.h"

namespace weft {

// Elements of a flat buffer for tensors of these shapes, including the padding of the last one.
int64_t flat_size(std::span<const Shape> shapes);

// First element of each tensor in the flat buffer.
std::vector<int64_t> flat_offsets(std::span<const Shape> shapes);

// The number of shards of a tensor over the axes along which its dims are sharded.
int64_t shards_of(const TensorType& type, const Mesh& mesh);

// Storage of one parameter: the flat of its shard, which is itself distributed evenly over `axis`,
// which may be a joint one.
TensorType flat_type(const TensorType& param, std::string_view axis, const Mesh& mesh);

// The name of a bucket, as the owner of its states: its only member, or its first member and the
// number of others: "layers.0.attention_norm.weight+5".
std::string bucket_name(std::span<const std::string> members);

}  // namespace weft

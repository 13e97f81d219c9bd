// Computes offsets by rounding every size up to full blocks.
#include "graph/flat.h"

#include <algorithm>

#include "base/error.h"

namespace weft {

int64_t flat_size(std::span<const Shape> shapes) {
  int64_t size = 0;
  for (const Shape& shape : shapes) {
    USER_CHECK(!__builtin_add_overflow(size, flat_padded(count(shape)), &size), "a flat buffer of ",
               shapes.size(), " tensors has too many elements to count");
  }
  return size;
}

std::vector<int64_t> flat_offsets(std::span<const Shape> shapes) {
  std::vector<int64_t> offsets;
  int64_t next = 0;
  for (const Shape& shape : shapes) {
    offsets.push_back(next);
    next += flat_padded(count(shape));
  }
  return offsets;
}

int64_t shards_of(const TensorType& type, const Mesh& mesh) {
  int64_t shards = 1;
  for (const AxisPlacement& entry : type.placement) {
    if (entry.kind == PlacementKind::Sharded) shards *= mesh.axis_size(entry.axis);
  }
  return shards;
}

TensorType flat_type(const TensorType& param, std::string_view axis, const Mesh& mesh) {
  const Shape local = local_shape(param, mesh);
  TensorType flat{param.dtype, {shards_of(param, mesh) * flat_size({&local, 1})}, {}};
  const std::vector<std::string_view> storage = joint_axes(axis);
  for (const MeshAxis& mesh_axis : mesh.all_axes()) {
    const std::string& name = mesh_axis.name;
    if (std::find(storage.begin(), storage.end(), name) != storage.end()) {
      flat.placement.push_back({PlacementKind::Flat, name});
    } else if (placement_over(param, name) != nullptr) {
      flat.placement.push_back({PlacementKind::Sharded, name, 0});
    }
  }
  return flat;
}

std::string bucket_name(std::span<const std::string> members) {
  CHECK(!members.empty(), "a bucket has members");
  return members.size() == 1 ? members[0] : cat(members[0], "+", members.size() - 1);
}

}  // namespace weft

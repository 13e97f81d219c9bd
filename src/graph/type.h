// The type of a value: dtype, global shape, and placement on the mesh. The local shape is derived,
// never stored. A data-parallel shard is storage, not a dim placement: F(axis) means that the
// row-major elements lie in a flat buffer that is sharded evenly over the axis.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/context_shard.h"

namespace weft {

enum class DType { F64, F32, BF16, F16, I32, I64 };

int64_t dtype_bytes(DType dtype);
std::string_view dtype_name(DType dtype);
// The dtype of that name ("f32", "bf16"); throws UserError otherwise.
DType parse_dtype(std::string_view name);
bool is_floating(DType dtype);

using Shape = std::vector<int64_t>;

// Number of elements; 1 for a scalar. Throws UserError if it does not fit in 63 bits.
int64_t count(const Shape& shape);
std::string to_string(const Shape& shape);

// A tensor as rows: the last dim is the row length, the product of the others the row count.
inline int64_t row_length(const Shape& shape) {
  return shape.empty() ? 1 : shape.back();
}
inline int64_t row_count(const Shape& shape) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

// The ranks as an n-dimensional grid with named axes, outermost first. A single process is a mesh
// without axes.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};

// The axes of a name with '+': "dp_shard+tp" is the group of ranks that differ along either axis,
// numbered row-major in this order, which is that of the mesh. One axis for a plain name.
std::vector<std::string_view> joint_axes(std::string_view axis);

struct Mesh {
  std::vector<MeshAxis> axes;
  // A second numbering of the same ranks, by which experts and their rows are placed. Its sizes
  // multiply to those of as many innermost axes; the axes outside of these belong to both
  // numberings. Empty: there is none.
  std::vector<MeshAxis> expert_axes = {};

  int64_t ranks() const;
  // The axes of both numberings, in the order in which joint names and placements list them.
  std::vector<MeshAxis> all_axes() const;
  // Whether it is one of `expert_axes`.
  bool is_expert_axis(std::string_view name) const;
  // The axes that number all ranks together with this one, which may be a joint one.
  std::vector<MeshAxis> numbering_of(std::string_view axis) const;
  // Size of the axis or joint axis; throws UserError if there is no such axis.
  int64_t axis_size(std::string_view name) const;
  // The difference in rank number between two neighbours along a plain axis, which must exist:
  // ranks are numbered row-major.
  int64_t stride(std::string_view axis) const;
  // The index along the axis or joint axis of a rank. The axis must exist.
  int64_t coordinate(int64_t rank, std::string_view axis) const;
  bool operator==(const Mesh&) const = default;
};

// "dp_shard=4, tp=2; edp=4, ep=2": the axes, then the expert axes. `parse_mesh` reads it; both
// numberings must be of the same ranks. Throws UserError.
std::string to_string(const Mesh& mesh);
Mesh parse_mesh(std::string_view text);

enum class PlacementKind { Sharded, Partial, Flat };

// Placement of a value over one mesh axis. Over axes that are not listed, it is replicated.
struct AxisPlacement {
  PlacementKind kind = PlacementKind::Sharded;
  std::string axis;
  int64_t dim = 0;  // the sharded tensor dimension; Sharded only
  bool operator==(const AxisPlacement&) const = default;
};

using Placement = std::vector<AxisPlacement>;

struct TensorType {
  DType dtype = DType::F32;
  Shape shape;          // global
  Placement placement;  // empty: replicated on every axis
  bool future = false;  // result of a started collective, readable only after its wait

  bool operator==(const TensorType&) const = default;
  int64_t elements() const { return count(shape); }
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }
};

inline int64_t row_length(const TensorType& type) {
  return row_length(type.shape);
}
inline int64_t row_count(const TensorType& type) {
  return row_count(type.shape);
}

// In a flat buffer every parameter starts at a multiple of this many elements, and every shard is a
// multiple of it.
inline constexpr int64_t kFlatBlock = 1024;

// Rounds up to full blocks.
constexpr int64_t flat_padded(int64_t elements) {
  return (elements + kFlatBlock - 1) / kFlatBlock * kFlatBlock;
}

// A range of a dim.
struct DimRange {
  int64_t begin = 0;
  int64_t size = 0;
  bool operator==(const DimRange&) const = default;
};

// The ranges of a dim of `size` that shard `index` of `shards` over the axis holds, in its order.
// Over most axes that is one range; the last ones are shorter or empty if the dim does not divide.
// Over cp it is a chunk near the head and one near the tail: shards of a sequence then do equal
// work under a causal mask.
std::vector<DimRange> shard_ranges(std::string_view axis, int64_t size, int64_t shards,
                                   int64_t index);

// The axes that number all ranks together with those of the placement.
std::vector<MeshAxis> numbering_of(const Placement& placement, const Mesh& mesh);

// The placement over the named axis, or nullptr if the value is replicated over it.
const AxisPlacement* placement_over(const TensorType& type, std::string_view axis);

// The first placement of flat storage over an axis, or nullptr if the value is not flat.
const AxisPlacement* flat_placement(const TensorType& type);

// The axis that flat storage is sharded over, a joint one if there are several; "" if the value is
// not flat.
std::string flat_axis(const TensorType& type);

// Whether the value is flat storage sharded over an axis.
inline bool is_flat(const TensorType& type) {
  return flat_placement(type) != nullptr;
}

// Whether the value is a partial sum over some axis.
bool is_partial(const TensorType& type);

// The shape on one rank. A dim that does not divide is rounded up: the last shards are padded. F
// storage has one dimension: the rank's shard of the padded elements over all axes of F.
Shape local_shape(const TensorType& type, const Mesh& mesh);

// "bf16[512,256] @S(0:dp) @P(tp)", "future<bf16[4,8]>".
std::string to_string(const TensorType& type);

// For message arguments, which are formatted only if the message is used.
inline std::ostream& operator<<(std::ostream& out, const TensorType& type) {
  return out << to_string(type);
}

// Parses what to_string prints; throws UserError.
TensorType parse_type(std::string_view text);

}  // namespace weft

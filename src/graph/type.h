// What a value is: element type, global shape, and where its elements lie on the mesh. The local
// shape is derived, never stored. A data-parallel shard is storage, not a dim placement: F(axis)
// means that the row-major elements lie in a flat buffer that is cut evenly over the axis.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

enum class DType { F64, F32, BF16, F16, I32, I64 };

int64_t dtype_bytes(DType dtype);
std::string_view dtype_name(DType dtype);
// The dtype of that name ("f32", "bf16"); throws UserError otherwise.
DType parse_dtype(std::string_view name);
bool is_floating(DType dtype);

using Shape = std::vector<int64_t>;

// Number of elements; 1 for a scalar. Throws UserError when it does not fit 63 bits.
int64_t count(const Shape& shape);
std::string to_string(const Shape& shape);

// A tensor as rows: the length of one is the last dim, their number the product of the others.
inline int64_t row_length(const Shape& shape) {
  return shape.empty() ? 1 : shape.back();
}
inline int64_t row_count(const Shape& shape) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

// The ranks as an n-dimensional grid with named axes, outermost first. One process is a mesh with
// no axes.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};

struct Mesh {
  std::vector<MeshAxis> axes;

  int64_t ranks() const;
  // Size of the named axis; throws UserError for a name that is not there.
  int64_t axis_size(std::string_view name) const;
  bool operator==(const Mesh&) const = default;
};

enum class PlacementKind { Sharded, Partial, Flat };

// How a value is spread over one mesh axis; an axis that is not mentioned is replicated.
struct AxisPlacement {
  PlacementKind kind = PlacementKind::Sharded;
  std::string axis;
  int64_t dim = 0;  // the cut tensor dimension; Sharded only
  bool operator==(const AxisPlacement&) const = default;
};

using Placement = std::vector<AxisPlacement>;

struct TensorType {
  DType dtype = DType::F32;
  Shape shape;          // global
  Placement placement;  // empty: replicated on every axis
  bool future = false;  // started by a collective, not there before its wait

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

// Every parameter starts on a block of this many elements, and each rank's cut of a flat buffer is
// a multiple of it.
inline constexpr int64_t kFlatBlock = 1024;

// That many elements rounded up to whole blocks.
constexpr int64_t flat_padded(int64_t elements) {
  return (elements + kFlatBlock - 1) / kFlatBlock * kFlatBlock;
}

// The placement over the named axis, or nullptr where the value is replicated over it.
const AxisPlacement* placement_over(const TensorType& type, std::string_view axis);

// The shape one rank holds. F storage becomes one dimension: the rank's cut of the padded elements.
Shape local_shape(const TensorType& type, const Mesh& mesh);

// "bf16[512,256] @S(0:dp) @P(tp)", "future<bf16[4,8]>".
std::string to_string(const TensorType& type);

// For the parts of a message, which become text only when there is something to say.
inline std::ostream& operator<<(std::ostream& out, const TensorType& type) {
  return out << to_string(type);
}

// Parses what to_string prints; throws UserError.
TensorType parse_type(std::string_view text);

}  // namespace weft

// Dtypes, shapes, meshes, placements and their text forms.
#include "graph/type.h"

#include <algorithm>
#include <limits>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "graph/names.h"

namespace weft {

namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr DTypeInfo kDTypes[] = {
    {DType::F64, "f64", 8}, {DType::F32, "f32", 4}, {DType::BF16, "bf16", 2},
    {DType::F16, "f16", 2}, {DType::I32, "i32", 4}, {DType::I64, "i64", 8},
};

const DTypeInfo& info(DType dtype) {
  for (const auto& entry : kDTypes) {
    if (entry.dtype == dtype) return entry;
  }
  throw InternalError("unknown dtype");
}

// "S(0:dp)", "P(dp)", "F(dp)".
AxisPlacement parse_placement(std::string_view text) {
  USER_CHECK(text.size() > 3 && text[1] == '(' && text.back() == ')', "placement \"@", text,
             "\" is not @S(dim:axis), @P(axis) or @F(axis)");
  std::string_view inner = text.substr(2, text.size() - 3);
  AxisPlacement placement;
  switch (text[0]) {
    case 'P':
      placement.kind = PlacementKind::Partial;
      break;
    case 'F':
      placement.kind = PlacementKind::Flat;
      break;
    case 'S': {
      size_t colon = inner.find(':');
      auto dim = colon == std::string_view::npos ? std::nullopt : parse_int(inner.substr(0, colon));
      USER_CHECK(dim && *dim >= 0, "placement \"@", text, "\" has no dim; write @S(dim:axis)");
      placement.dim = *dim;
      inner = inner.substr(colon + 1);
      break;
    }
    default:
      USER_CHECK(false, "placement \"@", text, "\" is not @S(dim:axis), @P(axis) or @F(axis)");
  }
  placement.axis = std::string(inner);
  USER_CHECK(!placement.axis.empty(), "placement \"@", text, "\" names no mesh axis");
  return placement;
}

Shape parse_shape(std::string_view text) {
  Shape shape;
  if (text.empty()) return shape;
  for (const auto& item : split(text, ',')) {
    auto size = parse_int(trim(item));
    USER_CHECK(size && *size >= 0, "shape [", shortened(text), "] has ", in_quotes(item),
               ", expected a size");
    shape.push_back(*size);
  }
  count(shape);
  return shape;
}

int64_t size_of(std::span<const MeshAxis> axes) {
  int64_t size = 1;
  for (const MeshAxis& axis : axes) size *= axis.size;
  return size;
}

auto find_axis(const std::vector<MeshAxis>& axes, std::string_view name) {
  return std::find_if(axes.begin(), axes.end(),
                      [&](const MeshAxis& axis) { return axis.name == name; });
}

// "dp_shard=4, tp=2".
std::vector<MeshAxis> parse_axes(std::string_view text) {
  std::vector<MeshAxis> axes;
  for (const std::string& item : split(text, ',')) {
    const std::string_view axis = trim(item);
    const size_t equals = axis.find('=');
    const auto size =
        equals == std::string_view::npos ? std::nullopt : parse_int(axis.substr(equals + 1));
    USER_CHECK(size && *size >= 1, "mesh axis ", in_quotes(axis), " is not of the form axis=size");
    axes.push_back({std::string(axis.substr(0, equals)), *size});
  }
  return axes;
}

}  // namespace

int64_t dtype_bytes(DType dtype) {
  return info(dtype).bytes;
}

std::string_view dtype_name(DType dtype) {
  return info(dtype).name;
}

DType parse_dtype(std::string_view name) {
  for (const auto& entry : kDTypes) {
    if (entry.name == name) return entry.dtype;
  }
  throw UserError(ExitCode::Config, cat("unknown element type ", in_quotes(name),
                                        "; use f64, f32, bf16, f16, i32 or i64"));
}

bool is_floating(DType dtype) {
  return dtype != DType::I32 && dtype != DType::I64;
}

int64_t count(const Shape& shape) {
  int64_t product = 1;
  for (int64_t size : shape) {
    USER_CHECK(!__builtin_mul_overflow(product, size, &product) &&
                   product <= std::numeric_limits<int64_t>::max() / 8,
               "shape ", to_string(shape), " has too many elements to count");
  }
  return product;
}

std::string to_string(const Shape& shape) {
  std::vector<std::string> sizes;
  for (int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + join(sizes, ",") + "]";
}

int64_t Mesh::ranks() const {
  return size_of(axes);
}

std::vector<std::string_view> joint_axes(std::string_view axis) {
  std::vector<std::string_view> names;
  for (size_t begin = 0, end = 0; end != std::string_view::npos; begin = end + 1) {
    end = axis.find('+', begin);
    names.push_back(axis.substr(begin, end - begin));
  }
  return names;
}

std::vector<MeshAxis> Mesh::all_axes() const {
  std::vector<MeshAxis> all = axes;
  all.insert(all.end(), expert_axes.begin(), expert_axes.end());
  return all;
}

bool Mesh::is_expert_axis(std::string_view name) const {
  return find_axis(expert_axes, name) != expert_axes.end();
}

std::vector<MeshAxis> Mesh::numbering_of(std::string_view axis) const {
  const std::vector<std::string_view> joint = joint_axes(axis);
  const bool of_experts = std::any_of(joint.begin(), joint.end(),
                                      [&](std::string_view one) { return is_expert_axis(one); });
  if (!of_experts) return axes;
  std::vector<MeshAxis> numbering;
  int64_t outer = ranks() / size_of(expert_axes);
  for (size_t i = 0; outer > 1; ++i) {
    numbering.push_back(axes.at(i));
    outer /= axes[i].size;
  }
  numbering.insert(numbering.end(), expert_axes.begin(), expert_axes.end());
  return numbering;
}

std::vector<MeshAxis> numbering_of(const Placement& placement, const Mesh& mesh) {
  for (const AxisPlacement& entry : placement) {
    if (mesh.is_expert_axis(entry.axis)) return mesh.numbering_of(entry.axis);
  }
  return mesh.axes;
}

int64_t Mesh::axis_size(std::string_view name) const {
  int64_t size = 1;
  for (const std::string_view one : joint_axes(name)) {
    const std::vector<MeshAxis>& own = is_expert_axis(one) ? expert_axes : axes;
    const auto found = find_axis(own, one);
    if (found == own.end()) {
      throw UserError(ExitCode::Config, cat("the mesh has no axis ", in_quotes(one)));
    }
    size *= found->size;
  }
  return size;
}

int64_t Mesh::stride(std::string_view axis) const {
  const std::vector<MeshAxis>& own = is_expert_axis(axis) ? expert_axes : axes;
  const auto found = find_axis(own, axis);
  CHECK(found != own.end(), "the mesh has no axis ", in_quotes(axis));
  return size_of({found + 1, own.end()});
}

int64_t Mesh::coordinate(int64_t rank, std::string_view axis) const {
  int64_t index = 0;
  for (const std::string_view one : joint_axes(axis)) {
    const int64_t step = stride(one), size = axis_size(one);
    index = index * size + rank / step % size;
  }
  return index;
}

std::string to_string(const Mesh& mesh) {
  std::vector<std::string> parts;
  for (const std::vector<MeshAxis>* axes : {&mesh.axes, &mesh.expert_axes}) {
    std::vector<std::string> items;
    for (const MeshAxis& axis : *axes) items.push_back(cat(axis.name, "=", axis.size));
    if (!items.empty()) parts.push_back(join(items, ", "));
  }
  return join(parts, "; ");
}

Mesh parse_mesh(std::string_view text) {
  const std::vector<std::string> parts = split(text, ';');
  USER_CHECK(parts.size() <= 2, "mesh ", in_quotes(text), " has ", parts.size(),
             " lists of axes, expected one or two");
  Mesh mesh;
  mesh.axes = parse_axes(parts.at(0));
  if (parts.size() == 1) return mesh;
  mesh.expert_axes = parse_axes(parts[1]);
  int64_t inner = 1;
  const int64_t experts = size_of(mesh.expert_axes);
  for (auto axis = mesh.axes.rbegin(); axis != mesh.axes.rend() && inner < experts; ++axis) {
    inner *= axis->size;
  }
  USER_CHECK(inner == experts, "mesh ", in_quotes(text), ": the expert axes number ", experts,
             " ranks, expected the product of the last axes");
  for (const MeshAxis& axis : mesh.expert_axes) {
    USER_CHECK(find_axis(mesh.axes, axis.name) == mesh.axes.end(), "mesh ", in_quotes(text),
               " has two axes ", in_quotes(axis.name));
  }
  return mesh;
}

const AxisPlacement* placement_over(const TensorType& type, std::string_view axis) {
  for (const auto& placement : type.placement) {
    if (placement.axis == axis) return &placement;
  }
  return nullptr;
}

const AxisPlacement* flat_placement(const TensorType& type) {
  for (const auto& placement : type.placement) {
    if (placement.kind == PlacementKind::Flat) return &placement;
  }
  return nullptr;
}

std::string flat_axis(const TensorType& type) {
  std::vector<std::string> axes;
  for (const auto& placement : type.placement) {
    if (placement.kind == PlacementKind::Flat) axes.push_back(placement.axis);
  }
  return join(axes, "+");
}

bool is_partial(const TensorType& type) {
  return std::any_of(type.placement.begin(), type.placement.end(), [](const auto& placement) {
    return placement.kind == PlacementKind::Partial;
  });
}

std::vector<DimRange> shard_ranges(std::string_view axis, int64_t size, int64_t shards,
                                   int64_t index) {
  if (axis == names::kContextAxis && shards > 1) {
    CHECK(size % (2 * shards) == 0, "a sequence of ", size, " in ", 2 * shards, " chunks");
    const int64_t chunk = size / (2 * shards);
    const ContextShard shard{2 * chunk, shards, index};
    return {{shard.in_full(0), chunk}, {shard.in_full(chunk), chunk}};
  }
  const int64_t most = (size + shards - 1) / shards;
  const int64_t begin = std::min(size, index * most);
  return {{begin, std::min(most, size - begin)}};
}

Shape local_shape(const TensorType& type, const Mesh& mesh) {
  Shape shape = type.shape;
  int64_t flat = 0;  // ranks that share flat storage; 0: it is not flat
  for (const auto& placement : type.placement) {
    const int64_t size = mesh.axis_size(placement.axis);
    if (placement.kind == PlacementKind::Sharded) {
      int64_t& dim = shape.at(static_cast<size_t>(placement.dim));
      dim = (dim + size - 1) / size;
    } else if (placement.kind == PlacementKind::Flat) {
      flat = std::max<int64_t>(flat, 1) * size;
    }
  }
  if (flat > 0) shape = {flat_padded((count(shape) + flat - 1) / flat)};
  return shape;
}

std::string to_string(const TensorType& type) {
  std::string text = cat(dtype_name(type.dtype), to_string(type.shape));
  for (const auto& placement : type.placement) {
    switch (placement.kind) {
      case PlacementKind::Sharded:
        text += cat(" @S(", placement.dim, ":", placement.axis, ")");
        break;
      case PlacementKind::Partial:
        text += cat(" @P(", placement.axis, ")");
        break;
      case PlacementKind::Flat:
        text += cat(" @F(", placement.axis, ")");
        break;
    }
  }
  return type.future ? cat("future<", text, ">") : text;
}

TensorType parse_type(std::string_view text) {
  text = trim(text);
  if (text.starts_with("future<") && text.ends_with(">")) {
    TensorType type = parse_type(text.substr(7, text.size() - 8));
    USER_CHECK(!type.future, "type ", in_quotes(text), " is a future of a future");
    type.future = true;
    return type;
  }
  size_t open = text.find('[');
  size_t close = text.find(']');
  USER_CHECK(open != std::string_view::npos && close != std::string_view::npos && open < close,
             "type ", in_quotes(text), " is not of the form f32[2,3]");
  TensorType type;
  type.dtype = parse_dtype(text.substr(0, open));
  type.shape = parse_shape(text.substr(open + 1, close - open - 1));
  std::string_view rest = trim(text.substr(close + 1));
  while (!rest.empty()) {
    USER_CHECK(rest[0] == '@', "type ", in_quotes(text), " has ", in_quotes(rest),
               " after its shape");
    size_t end = rest.find(')');
    USER_CHECK(end != std::string_view::npos, "type ", in_quotes(text),
               " has an unclosed placement");
    type.placement.push_back(parse_placement(rest.substr(1, end)));
    rest = trim(rest.substr(end + 1));
  }
  return type;
}

}  // namespace weft

#include "plan/index_map.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "graph/flat.h"

namespace weft {

namespace {

std::vector<Shape> shapes_of(const Binding& binding) {
  std::vector<Shape> shapes;
  for (const FlatMember& member : binding.members) shapes.push_back(member.shape);
  return shapes;
}

bool is_folded(const std::vector<std::string>& axes, const std::string& axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// The ranks along some axes of the mesh, numbered row-major, and a rank's number among them.
struct Fold {
  int64_t size = 1;
  int64_t index = 0;
};

template <class Included>
Fold fold(const Mesh& mesh, int64_t rank, Included included) {
  Fold fold;
  for (const MeshAxis& axis : mesh.axes) {
    if (!included(axis.name)) continue;
    fold.size *= axis.size;
    fold.index = fold.index * axis.size + mesh.coordinate(rank, axis.name);
  }
  return fold;
}

// Shard `index` of `shards` of [begin, begin + size) along a dim.
void shard_dim(int64_t& begin, int64_t& size, int64_t index, int64_t shards) {
  const int64_t most = (size + shards - 1) / shards;
  const int64_t first = std::min(size, index * most);
  begin += first;
  size = std::min(most, size - first);
}

// Adds the run, or extends the last one.
void add_run(std::vector<ElementRun>& runs, const ElementRun& run) {
  if (run.elements == 0) return;
  if (!runs.empty()) {
    ElementRun& last = runs.back();
    if (last.first + last.elements == run.first && last.at + last.elements == run.at) {
      last.elements += run.elements;
      return;
    }
  }
  runs.push_back(run);
}

// The number of trailing dims that a box covers completely; rows of the dim before them are
// contiguous in the parameter.
size_t full_dims(const Shape& shape, const Box& box) {
  size_t full = 0;
  while (full < shape.size() && box.size[shape.size() - 1 - full] == shape[shape.size() - 1 - full])
    ++full;
  return full;
}

// The part of a run whose place in the tensor lies in [begin, end).
ElementRun clipped(const ElementRun& run, int64_t begin, int64_t end) {
  const int64_t low = std::max(run.at, begin);
  const int64_t high = std::min(run.at + run.elements, end);
  return {run.first + low - run.at, std::max<int64_t>(high - low, 0), low};
}

}  // namespace

std::vector<Box> local_boxes(const ParamShape& param, const Placement& placement, const Mesh& mesh,
                             int64_t rank) {
  std::vector<Box> boxes;
  int64_t row = 0;
  for (const int64_t rows : param.slices) {
    Box box{Shape(param.shape.size(), 0), param.shape};
    box.begin.at(0) = row;
    box.size.at(0) = rows;
    row += rows;
    for (const MeshAxis& axis : mesh.axes) {
      for (const AxisPlacement& entry : placement) {
        if (entry.kind != PlacementKind::Sharded || entry.axis != axis.name) continue;
        const auto dim = static_cast<size_t>(entry.dim);
        shard_dim(box.begin.at(dim), box.size.at(dim), mesh.coordinate(rank, axis.name), axis.size);
      }
    }
    boxes.push_back(std::move(box));
  }
  CHECK(row == param.shape.at(0), param.name, " has ", param.shape.at(0), " rows, its slices ",
        row);
  return boxes;
}

std::vector<ElementRun> runs_of(const Shape& shape, std::span<const Box> boxes, int64_t begin,
                                int64_t end, int64_t at) {
  std::vector<ElementRun> runs;
  int64_t start = 0;  // of the box among all boxes
  for (const Box& box : boxes) {
    const int64_t elements = count(box.size);
    int64_t from = std::max(begin, start) - start;
    const int64_t to = std::min(end, start + elements) - start;
    // Everything from the first dim that is covered in part on is contiguous.
    const size_t outer = shape.size() - std::min(shape.size(), full_dims(shape, box) + 1);
    int64_t length = 1;
    for (size_t dim = outer; dim < shape.size(); ++dim) length *= box.size[dim];
    while (from < to) {
      int64_t rest = from / length, first = 0, stride = 1, inner = from % length;
      for (size_t dim = shape.size(); dim-- > 0;) {
        int64_t index = 0;
        if (dim >= outer) {
          index = inner % box.size[dim];
          inner /= box.size[dim];
        } else {
          index = rest % box.size[dim];
          rest /= box.size[dim];
        }
        first += (box.begin[dim] + index) * stride;
        stride *= shape[dim];
      }
      const int64_t run = std::min(length - from % length, to - from);
      add_run(runs, {first, run, at + start + from - begin});
      from += run;
    }
    start += elements;
  }
  return runs;
}

IndexMap::IndexMap(const Plan& plan, std::vector<ParamShape> params, int64_t rank)
    : params_(std::move(params)), places_(params_.size()) {
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < params_.size(); ++i) index[params_[i].name] = i;
  for (const Binding& binding : plan.params) place(plan, binding, rank, index);
  for (size_t i = 0; i < params_.size(); ++i) {
    CHECK(places_[i].binding != nullptr, "the plan has no parameter ", params_[i].name);
  }
  share_writing(plan, rank);
}

void IndexMap::place(const Plan& plan, const Binding& binding, int64_t rank,
                     const std::map<std::string, size_t>& index) {
  const bool flat = !binding.axis.empty();
  const int64_t shard = count(binding.tensor.shape);
  const std::vector<std::string> axes = split(binding.axis, '+');
  const Fold own =
      fold(plan.mesh, rank, [&](const std::string& axis) { return flat && is_folded(axes, axis); });
  const int64_t begin = own.index * shard;
  const std::vector<int64_t> offsets =
      flat ? flat_offsets(shapes_of(binding)) : std::vector<int64_t>{0};
  for (size_t member = 0; member < offsets.size(); ++member) {
    const std::string& name = flat ? binding.members[member].name : binding.name;
    const auto found = index.find(name);
    if (found == index.end()) continue;
    const ParamShape& param = params_[found->second];
    const std::vector<Box> boxes = local_boxes(param, {}, plan.mesh, rank);
    const int64_t first = offsets[member];
    const int64_t low = std::max(first, begin);
    const int64_t high = std::min(first + count(param.shape), begin + shard);
    Place& place = places_[found->second];
    place.binding = &binding;
    place.held = runs_of(param.shape, boxes, low - first, std::max(high, low) - first, low - begin);
  }
}

// The tensors that the same ranks replicate form one line of elements, of which each replica
// writes an equal part, in full blocks.
void IndexMap::share_writing(const Plan& plan, int64_t rank) {
  std::map<std::string, int64_t> lengths;  // by the axis of F
  std::unordered_map<const Binding*, int64_t> starts;
  for (const Binding& binding : plan.params) {
    int64_t& length = lengths[binding.axis];
    starts[&binding] = length;
    length += flat_padded(count(binding.tensor.shape));
  }
  for (Place& place : places_) {
    const std::vector<std::string> axes = split(place.binding->axis, '+');
    const auto [replicas, replica] =
        fold(plan.mesh, rank, [&](const std::string& axis) { return !is_folded(axes, axis); });
    const int64_t blocks = lengths.at(place.binding->axis) / kFlatBlock;
    const int64_t start = starts.at(place.binding);
    const int64_t begin = blocks * replica / replicas * kFlatBlock - start;
    const int64_t end = blocks * (replica + 1) / replicas * kFlatBlock - start;
    for (const ElementRun& run : place.held) add_run(place.written, clipped(run, begin, end));
  }
}

}  // namespace weft

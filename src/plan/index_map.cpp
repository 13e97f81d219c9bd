#include "plan/index_map.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "graph/flat.h"

namespace weft {

namespace {

std::vector<FlatMember> members_of(const Binding& binding) {
  if (!binding.members.empty()) return binding.members;
  return {{binding.name, binding.tensor.shape}};
}

// The ranks along some axes of the mesh, numbered row-major, and a rank's number among them.
struct Fold {
  int64_t size = 1;
  int64_t index = 0;
};

// Over the axes that number all ranks together with those of the joint axis, without these.
Fold fold_others(const Mesh& mesh, int64_t rank, const std::string& joint) {
  const std::vector<std::string_view> axes = joint_axes(joint);
  Fold fold;
  for (const MeshAxis& axis : mesh.numbering_of(joint)) {
    if (std::find(axes.begin(), axes.end(), axis.name) != axes.end()) continue;
    fold.size *= axis.size;
    fold.index = fold.index * axis.size + mesh.coordinate(rank, axis.name);
  }
  return fold;
}

// A range of a dim, and where it begins in the local tensor.
struct Segment {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t at = 0;
};

// The local part of one dim. Padding makes it longer than its segments.
struct LocalDim {
  std::vector<Segment> segments;
  int64_t size = 0;
};

// What a rank holds of one part of a packed dim; other dims have one part.
struct LocalPart {
  std::vector<DimRange> ranges;
  int64_t filled = 0;  // elements in them
  int64_t size = 0;    // with padding
};

std::vector<LocalPart> full_parts(int64_t size, const std::vector<int64_t>& sizes) {
  std::vector<LocalPart> parts;
  int64_t begin = 0;
  for (const int64_t part : sizes.empty() ? std::vector<int64_t>{size} : sizes) {
    parts.push_back({{{begin, part}}, part, part});
    begin += part;
  }
  CHECK(begin == size, "parts of ", begin, " elements in a dim of ", size);
  return parts;
}

// Shard `index` of `shards` of the part: ranges of its elements in the order in which it has them.
LocalPart shard_of(const LocalPart& part, std::string_view axis, int64_t shards, int64_t index) {
  LocalPart shard;
  shard.size = (part.filled + shards - 1) / shards;
  for (const DimRange& wanted : shard_ranges(axis, part.filled, shards, index)) {
    int64_t at = 0;
    for (const DimRange& range : part.ranges) {
      const int64_t low = std::max(at, wanted.begin);
      const int64_t high = std::min(at + range.size, wanted.begin + wanted.size);
      if (low < high) shard.ranges.push_back({range.begin + low - at, high - low});
      at += range.size;
    }
    shard.filled += wanted.size;
  }
  return shard;
}

LocalDim local_dim(const std::vector<LocalPart>& parts) {
  LocalDim dim;
  for (const LocalPart& part : parts) {
    int64_t at = dim.size;
    for (const DimRange& range : part.ranges) {
      dim.segments.push_back({range.begin, range.size, at});
      at += range.size;
    }
    dim.size += part.size;
  }
  return dim;
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

// Adds the runs of the dims from `dim` on, which begin at these elements of the parameter and of
// the local tensor.
void add_runs(const Shape& shape, const std::vector<LocalDim>& dims, size_t dim, int64_t first,
              int64_t at, std::vector<ElementRun>& runs) {
  if (dim == shape.size()) {
    add_run(runs, {first, 1, at});
    return;
  }
  int64_t stride = 1, local_stride = 1;
  bool rest_is_full = true;
  for (size_t inner = dim + 1; inner < shape.size(); ++inner) {
    stride *= shape[inner];
    local_stride *= dims[inner].size;
    rest_is_full &= dims[inner].segments.size() == 1 && dims[inner].size == shape[inner];
  }
  for (const Segment& segment : dims[dim].segments) {
    const int64_t from = first + segment.begin * stride, to = at + segment.at * local_stride;
    if (rest_is_full) {
      add_run(runs, {from, segment.size * stride, to});
      continue;
    }
    for (int64_t i = 0; i < segment.size; ++i) {
      add_runs(shape, dims, dim + 1, from + i * stride, to + i * local_stride, runs);
    }
  }
}

// The part of a run whose place in the tensor lies in [begin, end).
ElementRun clipped(const ElementRun& run, int64_t begin, int64_t end) {
  const int64_t low = std::max(run.at, begin);
  const int64_t high = std::min(run.at + run.elements, end);
  return {run.first + low - run.at, std::max<int64_t>(high - low, 0), low};
}

}  // namespace

std::vector<ElementRun> local_runs(const ParamShape& param, const Placement& placement,
                                   const Mesh& mesh, int64_t rank) {
  std::vector<LocalDim> dims;
  for (size_t i = 0; i < param.shape.size(); ++i) {
    std::vector<LocalPart> parts = full_parts(
        param.shape[i], i < param.parts.size() ? param.parts[i] : std::vector<int64_t>{});
    bool sharded = false;
    for (const AxisPlacement& entry : placement) {
      if (entry.kind != PlacementKind::Sharded || entry.dim != static_cast<int64_t>(i)) continue;
      const int64_t index = mesh.coordinate(rank, entry.axis);
      for (LocalPart& part : parts) {
        part = shard_of(part, entry.axis, mesh.axis_size(entry.axis), index);
      }
      sharded = true;
    }
    dims.push_back(local_dim(sharded ? parts : full_parts(param.shape[i], {})));
  }
  std::vector<ElementRun> runs;
  add_runs(param.shape, dims, 0, 0, 0, runs);
  return runs;
}

std::string distributing_axis(const Binding& binding, const Mesh& mesh) {
  const std::vector<std::string> flat = split(binding.axis, '+');
  const std::vector<FlatMember> members = members_of(binding);
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh.all_axes()) {
    const TensorType type{DType::F32, {}, members.front().placement};
    const bool distributes = std::find(flat.begin(), flat.end(), axis.name) != flat.end() ||
                             placement_over(type, axis.name) != nullptr;
    if (distributes) axes.push_back(axis.name);
  }
  return join(axes, "+");
}

std::vector<ElementRun> stored_runs(const Plan& plan, const Binding& binding,
                                    const ParamShape& param, int64_t rank) {
  const bool flat = !binding.axis.empty();
  const int64_t shard = count(binding.tensor.shape);
  const int64_t begin = flat ? plan.mesh.coordinate(rank, binding.axis) * shard : 0;
  const std::vector<FlatMember> members = members_of(binding);
  const std::vector<int64_t> offsets =
      flat ? member_offsets(binding, plan.mesh) : std::vector<int64_t>{0};
  std::vector<ElementRun> stored;
  for (size_t member = 0; member < members.size(); ++member) {
    if (members[member].name != param.name) continue;
    for (ElementRun run : local_runs(param, members[member].placement, plan.mesh, rank)) {
      run.at += offsets[member] - begin;
      add_run(stored, clipped(run, 0, shard));
    }
  }
  return stored;
}

IndexMap::IndexMap(const Plan& plan, std::vector<ParamShape> params, int64_t rank)
    : params_(std::move(params)), places_(params_.size()) {
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < params_.size(); ++i) index[params_[i].name] = i;
  for (const Binding& binding : plan.params) {
    for (const FlatMember& member : members_of(binding)) {
      const auto found = index.find(member.name);
      if (found == index.end()) continue;
      Place& place = places_[found->second];
      place.binding = &binding;
      place.held = stored_runs(plan, binding, params_[found->second], rank);
    }
  }
  for (size_t i = 0; i < params_.size(); ++i) {
    CHECK(places_[i].binding != nullptr, "the plan has no parameter ", params_[i].name);
  }
  share_writing(plan, rank);
}

// The tensors that the same ranks replicate form one line of elements, of which each replica
// writes an equal part, in full blocks.
void IndexMap::share_writing(const Plan& plan, int64_t rank) {
  std::map<std::string, int64_t> lengths;  // by the axes that distribute it
  std::unordered_map<const Binding*, int64_t> starts;
  for (const Binding& binding : plan.params) {
    int64_t& length = lengths[distributing_axis(binding, plan.mesh)];
    starts[&binding] = length;
    length += flat_padded(count(binding.tensor.shape));
  }
  for (Place& place : places_) {
    const std::string axes = distributing_axis(*place.binding, plan.mesh);
    const auto [replicas, replica] = fold_others(plan.mesh, rank, axes);
    const int64_t blocks = lengths.at(axes) / kFlatBlock;
    const int64_t start = starts.at(place.binding);
    const int64_t begin = blocks * replica / replicas * kFlatBlock - start;
    const int64_t end = blocks * (replica + 1) / replicas * kFlatBlock - start;
    for (const ElementRun& run : place.held) add_run(place.written, clipped(run, begin, end));
  }
}

}  // namespace weft

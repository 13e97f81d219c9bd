// Reads and writes parameters in whatever layout the plan chose.
#include "train/param_store.h"

#include <algorithm>

#include "base/error.h"
#include "base/half.h"
#include "graph/dims.h"
#include "runtime/comm/flat_layout.h"
#include "train/host_chunks.h"

namespace weft {

namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kElementsAtOnce = 1 << 22;

std::vector<ParamShape> shapes_of(std::span<const ParamInfo> params) {
  std::vector<ParamShape> shapes;
  for (const ParamInfo& param : params) {
    ParamShape shape{param.name, param.shape, {}};
    for (const std::string& dim : param.dims) shape.parts.push_back(dims::parts_of(dim));
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

// How a member of the binding is sharded before it is stored.
Placement placement_of(const Binding& binding, const std::string& param) {
  for (const FlatMember& member : binding.members) {
    if (member.name == param) return member.placement;
  }
  return {};
}

// Calls use(at, values) with the elements of the runs, a bounded number at a time.
template <class Use>
void for_runs(std::span<const ElementRun> runs, size_t param, const ElementValues& values,
              Use use) {
  std::vector<float> buffer;
  for (const ElementRun& run : runs) {
    for (int64_t done = 0; done < run.elements; done += kElementsAtOnce) {
      buffer.resize(static_cast<size_t>(std::min(kElementsAtOnce, run.elements - done)));
      values(param, run.first + done, buffer);
      use(run.at + done, std::span<const float>(buffer));
    }
  }
}

}  // namespace

ParamStore::ParamStore(const Compiled& compiled, Executor& executor, Device& device,
                       Communicator& comm)
    : compiled_(compiled),
      executor_(executor),
      device_(device),
      comm_(comm),
      map_(compiled.plan, shapes_of(compiled.params), comm.rank()) {
  for (size_t i = 0; i < map_.size(); ++i) {
    const Binding& binding = map_.binding(i);
    const std::string& name = map_.param(i).name;
    CHECK(group_axis(binding).empty() || elements_at_once(binding) > 0, "no memory to gather ",
          binding.name, " in");
    copies_.push_back({find_state(compiled.plan, {StateRole::LowCopy, binding.name}),
                       find_state(compiled.plan, {StateRole::FullCopy, name})});
  }
}

int64_t ParamStore::host_ranks() const {
  return ranks_on_host(compiled_.device, comm_.ranks());
}

void ParamStore::set(size_t param, const ElementValues& values) {
  forget_gathered();
  const Copies& copies = copies_.at(param);
  for_runs(map_.held(param), param, values, [&](int64_t at, std::span<const float> elements) {
    write_rounded(map_.binding(param), at, elements);
    if (copies.low != nullptr) write_rounded(*copies.low, at, elements);
  });
  if (copies.full == nullptr) return;
  const std::vector<ElementRun> read =
      local_runs(map_.param(param), placement_of(map_.binding(param), map_.param(param).name),
                 compiled_.plan.mesh, comm_.rank());
  for_runs(read, param, values, [&](int64_t at, std::span<const float> elements) {
    write_rounded(*copies.full, at, elements);
  });
}

void ParamStore::set_states(StateRole role, const ElementValues& values) {
  for (size_t i = 0; i < map_.size(); ++i) {
    const Binding* binding = state(i, role);
    if (binding == nullptr) continue;
    for_runs(map_.held(i), i, values, [&](int64_t at, std::span<const float> elements) {
      write_rounded(*binding, at, elements);
    });
  }
}

const Binding* ParamStore::state(size_t param, StateRole role) const {
  const Binding* found = find_state(compiled_.plan, {role, map_.binding(param).name});
  CHECK(found != nullptr || !compiled_.params.at(param).trained, "no state ",
        to_string(StateKey{role, map_.binding(param).name}));
  return found;
}

void ParamStore::read(size_t param, std::span<float> values) {
  const Binding& binding = map_.binding(param);
  const std::string axis = group_axis(binding);
  if (axis.empty()) {
    if (values.empty()) return;
    executor_.read(binding.name, values.data(), static_cast<int64_t>(values.size_bytes()));
    return;
  }
  if (gathered_ != &binding) gather(binding, !values.empty());
  if (values.empty()) return;
  CHECK(!gathered_values_.empty(), "the first of ", binding.name, " was read elsewhere");
  const std::vector<int64_t> ranks = comm_.info().group(axis);
  const int64_t shard = executor_.bound(binding.name).elements();
  for (size_t i = 0; i < ranks.size(); ++i) {
    const float* part = gathered_values_.data() + static_cast<int64_t>(i) * shard;
    for (const ElementRun& run :
         stored_runs(compiled_.plan, binding, map_.param(param), ranks[i])) {
      std::copy_n(part + run.at, run.elements, values.data() + run.first);
    }
  }
}

std::string ParamStore::group_axis(const Binding& binding) const {
  return distributing_axis(binding, compiled_.plan.mesh);
}

// Writes elements from `first` on in the binding's type, rounded like a cast.
void ParamStore::write_rounded(const Binding& binding, int64_t first,
                               std::span<const float> values) {
  const DType dtype = binding.tensor.dtype;
  const int64_t at = first * dtype_bytes(dtype);
  if (dtype == DType::F32) {
    executor_.write_part(binding.name, at, values.data(),
                         static_cast<int64_t>(values.size_bytes()));
    return;
  }
  const bool bf16 = dtype == DType::BF16;
  CHECK(bf16 || dtype == DType::F16, binding.name, " is ", dtype_name(dtype));
  std::vector<uint16_t> rounded(values.size());
  in_chunks(static_cast<int64_t>(values.size()), host_ranks(), [&](size_t begin, size_t elements) {
    for (size_t i = begin; i < begin + elements; ++i) {
      rounded[i] = bf16 ? bf16_from_f32(values[i]) : f16_from_f32(values[i]);
    }
  });
  executor_.write_part(binding.name, at, rounded.data(),
                       static_cast<int64_t>(rounded.size() * sizeof(uint16_t)));
}

// Elements of every rank's shard that are gathered at once: as many full blocks as fit into the
// memory that programs leave free between runs.
int64_t ParamStore::elements_at_once(const Binding& binding) const {
  const int64_t block = comm_.size(group_axis(binding)) * kFlatBlock * kFloat;
  return std::ssize(executor_.scratch()) / block * kFlatBlock;
}

// Gathered slice by slice into host memory, so that parameters can be read even if the plan fills
// the device to the last byte.
void ParamStore::gather(const Binding& binding, bool keep) {
  const Tensor shard = executor_.bound(binding.name);
  const std::string axis = group_axis(binding);
  const int64_t ranks = comm_.size(axis), most = elements_at_once(binding);
  char* scratch = executor_.scratch().data();
  gathered_ = &binding;
  gathered_values_.resize(static_cast<size_t>(keep ? ranks * shard.elements() : 0));
  auto stream = device_.make_stream("read");
  for (int64_t at = 0; at < shard.elements(); at += most) {
    const int64_t slice = std::min(most, shard.elements() - at);
    const Tensor own{shifted(shard.data, shard.dtype, at), shard.dtype, {slice}};
    const Tensor gathered{scratch, DType::F32, {ranks * slice}};
    comm_.all_gather({.axis = axis, .channel = kHostChannel, .stream = stream.get()}, own,
                     {&gathered, 1});
    for (int64_t rank = 0; keep && rank < ranks; ++rank) {
      stream->copy_out(gathered_values_.data() + rank * shard.elements() + at,
                       scratch + rank * slice * kFloat, slice * kFloat);
    }
    stream->synchronize();
  }
}

void ParamStore::forget_gathered() {
  gathered_ = nullptr;
  gathered_values_ = {};
}

}  // namespace weft

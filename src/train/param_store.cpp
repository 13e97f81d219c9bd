// Reads and writes parameters in whatever layout the plan chose.
#include "train/param_store.h"

#include <algorithm>

#include "base/error.h"
#include "base/half.h"
#include "graph/flat.h"
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
    for (const NamedRows& rows : param.slices) shape.slices.push_back(rows.count);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

std::vector<Shape> shapes_of(const Binding& binding) {
  std::vector<Shape> shapes;
  for (const FlatMember& member : binding.members) shapes.push_back(member.shape);
  return shapes;
}

// Where the parameter begins in the full flat tensor; 0 if it has its own tensor.
int64_t first_in(const Binding& binding, const std::string& param) {
  const std::vector<int64_t> offsets = flat_offsets(shapes_of(binding));
  for (size_t i = 0; i < binding.members.size(); ++i) {
    if (binding.members[i].name == param) return offsets[i];
  }
  return 0;
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
    CHECK(binding.axis.empty() || elements_at_once(binding) > 0, "no memory to gather ",
          binding.name, " in");
    copies_.push_back({find_state(compiled.plan, {StateRole::LowCopy, binding.name}),
                       find_state(compiled.plan, {StateRole::FullCopy, name}),
                       first_in(binding, name)});
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
  const ElementRun all{0, count(map_.param(param).shape), 0};
  for_runs({&all, 1}, param, values, [&](int64_t at, std::span<const float> elements) {
    write_rounded(*copies.full, at, elements);
  });
}

void ParamStore::set_states(StateRole role, const ElementValues& values) {
  for (size_t i = 0; i < map_.size(); ++i) {
    for_runs(map_.held(i), i, values, [&](int64_t at, std::span<const float> elements) {
      write_rounded(state(i, role), at, elements);
    });
  }
}

const Binding& ParamStore::state(size_t param, StateRole role) const {
  const Binding* found = find_state(compiled_.plan, {role, map_.binding(param).name});
  CHECK(found != nullptr, "no state ", to_string(StateKey{role, map_.binding(param).name}));
  return *found;
}

void ParamStore::read(size_t param, std::span<float> values) {
  const Binding& binding = map_.binding(param);
  if (binding.axis.empty()) {
    if (values.empty()) return;
    executor_.read(binding.name, values.data(), static_cast<int64_t>(values.size_bytes()));
    return;
  }
  if (gathered_ != &binding) gather(binding, !values.empty());
  if (values.empty()) return;
  CHECK(!gathered_values_.empty(), "the first of ", binding.name, " was read elsewhere");
  std::copy_n(gathered_values_.begin() + copies_[param].first, values.size(), values.begin());
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
  const int64_t block = comm_.size(binding.axis) * kFlatBlock * kFloat;
  return std::ssize(executor_.scratch()) / block * kFlatBlock;
}

// Gathered slice by slice into host memory, so that parameters can be read even if the plan fills
// the device to the last byte.
void ParamStore::gather(const Binding& binding, bool keep) {
  const Tensor shard = executor_.bound(binding.name);
  const int64_t ranks = comm_.size(binding.axis), most = elements_at_once(binding);
  char* scratch = executor_.scratch().data();
  gathered_ = &binding;
  gathered_values_.resize(static_cast<size_t>(keep ? ranks * shard.elements() : 0));
  auto stream = device_.make_stream("read");
  for (int64_t at = 0; at < shard.elements(); at += most) {
    const int64_t slice = std::min(most, shard.elements() - at);
    const Tensor own{shifted(shard.data, shard.dtype, at), shard.dtype, {slice}};
    const Tensor gathered{scratch, DType::F32, {ranks * slice}};
    comm_.all_gather({.axis = binding.axis, .channel = kHostChannel, .stream = stream.get()}, own,
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

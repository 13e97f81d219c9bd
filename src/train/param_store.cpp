// Reads and writes full parameters in whatever layout the plan chose.
#include "train/param_store.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/half.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "graph/flat.h"
#include "runtime/comm/flat_layout.h"
#include "train/init.h"

namespace weft {

namespace {

constexpr int64_t kFloat = sizeof(float);

// Calls work(first, elements) for chunks of `elements`, on this rank's cores of the host.
template <class Work>
void in_chunks(int64_t elements, int64_t ranks_on_host, Work work) {
  constexpr int64_t kChunk = 1 << 18;
  const int64_t threads = std::max<int64_t>(1, usable_cores() / ranks_on_host);
  const auto chunks = static_cast<size_t>((elements + kChunk - 1) / kChunk);
  parallel_for(static_cast<int>(threads), chunks, [&](int, size_t chunk) {
    const int64_t first = static_cast<int64_t>(chunk) * kChunk;
    work(static_cast<size_t>(first), static_cast<size_t>(std::min(kChunk, elements - first)));
  });
}

std::vector<Shape> shapes_of(const Binding& binding) {
  std::vector<Shape> shapes;
  for (const FlatMember& member : binding.members) shapes.push_back(member.shape);
  return shapes;
}

}  // namespace

ParamStore::ParamStore(const Compiled& compiled, Executor& executor, Device& device,
                       Communicator& comm)
    : compiled_(compiled), executor_(executor), device_(device), comm_(comm) {
  std::map<std::string, Location> by_name;
  for (const Binding& binding : compiled.plan.params) {
    const Binding* low = find_state(compiled.plan, {StateRole::LowCopy, binding.name});
    if (binding.axis.empty()) {
      by_name[binding.name] = {&binding, low, 0, 0};
      continue;
    }
    CHECK(elements_at_once(binding) > 0, "no memory to gather ", binding.name, " in");
    const std::vector<int64_t> offsets = flat_offsets(shapes_of(binding));
    for (size_t i = 0; i < binding.members.size(); ++i) {
      by_name[binding.members[i].name] = {&binding, low, i, offsets[i]};
    }
  }
  for (const ParamInfo& param : compiled.params) {
    CHECK(by_name.contains(param.name), "the plan has no parameter ", param.name);
    locations_.push_back(by_name.at(param.name));
    copies_.push_back(find_state(compiled.plan, {StateRole::FullCopy, param.name}));
  }
}

ParamStore::Part ParamStore::own_part(const Location& location, int64_t elements) const {
  const Binding& binding = *location.binding;
  if (binding.axis.empty()) return {0, elements, 0};
  const int64_t shard = count(binding.tensor.shape);
  const int64_t begin = comm_.coordinate(binding.axis) * shard;
  const int64_t low = std::max(location.first, begin);
  const int64_t high = std::min(location.first + elements, begin + shard);
  return {low - location.first, std::max<int64_t>(high - low, 0), low - begin};
}

// Elements first, first + 1, ... of a parameter's initial values.
void ParamStore::make(const ParamInfo& param, uint64_t seed, int64_t first,
                      std::span<float> values) const {
  in_chunks(static_cast<int64_t>(values.size()), host_ranks(), [&](size_t at, size_t elements) {
    init_param(param, seed, first + static_cast<int64_t>(at), values.subspan(at, elements));
  });
}

int64_t ParamStore::host_ranks() const {
  return ranks_on_host(compiled_.device, comm_.ranks());
}

void ParamStore::initialize(uint64_t seed) {
  std::vector<float> values;
  for (size_t i = 0; i < locations_.size(); ++i) {
    const ParamInfo& param = compiled_.params[i];
    const Part part = own_part(locations_[i], count(param.shape));
    if (part.elements == 0) continue;
    values.resize(static_cast<size_t>(part.elements));
    make(param, seed, part.from, values);
    write_own(locations_[i], part, values);
  }
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i] == nullptr) continue;
    values.resize(static_cast<size_t>(count(compiled_.params[i].shape)));
    make(compiled_.params[i], seed, 0, values);
    write_rounded(*copies_[i], 0, values);
  }
}

void ParamStore::write(size_t param, std::span<const float> values) {
  forget_gathered();
  const Location& location = locations_.at(param);
  if (copies_.at(param) != nullptr) write_rounded(*copies_[param], 0, values);
  const Part part = own_part(location, static_cast<int64_t>(values.size()));
  if (part.elements == 0) return;
  write_own(location, part,
            values.subspan(static_cast<size_t>(part.from), static_cast<size_t>(part.elements)));
}

void ParamStore::read(size_t param, std::span<float> values) {
  const Location& location = locations_.at(param);
  if (location.binding->axis.empty()) {
    if (values.empty()) return;
    executor_.read(location.binding->name, values.data(),
                   static_cast<int64_t>(values.size_bytes()));
    return;
  }
  if (gathered_ != location.binding) gather(*location.binding, !values.empty());
  if (values.empty()) return;
  CHECK(!gathered_values_.empty(), "the first of ", location.binding->name, " was read elsewhere");
  std::copy_n(gathered_values_.begin() + location.first, values.size(), values.begin());
}

// Writes this rank's part of a parameter, and its low-precision copy if there is one.
void ParamStore::write_own(const Location& location, const Part& part,
                           std::span<const float> values) {
  write_rounded(*location.binding, part.at, values);
  if (location.low != nullptr) write_rounded(*location.low, part.at, values);
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

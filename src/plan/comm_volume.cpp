// Computes sizes from the tensor refs of a step: the shard of one rank times the ranks, or the flat
// layout.
#include "plan/comm_volume.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "graph/comm_cost.h"
#include "graph/flat.h"

namespace weft {
namespace {

std::vector<Shape> shapes_of(std::span<const TensorRef> refs) {
  std::vector<Shape> shapes;
  for (const TensorRef& ref : refs) shapes.push_back(ref.shape);
  return shapes;
}

const CollectiveInfo& info_of(const Step& step) {
  return *find_op(step.op)->collective;
}

// Bytes of the buffer, or of the full tensor, that the ranks of the axis gather, scatter or sum.
int64_t flat_bytes(const Step& step, int64_t ranks) {
  const bool gathers = info_of(step).full == CollectiveSide::Results;
  const std::vector<TensorRef>& full = gathers ? step.results : step.operands;
  const std::vector<TensorRef>& other = gathers ? step.operands : step.results;
  const int64_t element = dtype_bytes(full.at(0).dtype);
  if (!is_flat_collective(call_of(step))) {
    int64_t bytes = 0;
    for (size_t i = 0; i < step.results.size(); ++i) bytes += tensor_bytes(full[i]);
    return bytes;
  }
  if (info_of(step).sharded) return ranks * count(other.at(0).shape) * element;
  return full.size() == 1 ? tensor_bytes(full[0]) : flat_size(shapes_of(full)) * element;
}

int64_t sent_bytes(const Step& step, int64_t ranks) {
  const int64_t bytes = flat_bytes(step, ranks);
  const int64_t shares = (bytes + ranks - 1) / ranks * (ranks - 1);
  switch (info_of(step).sent) {
    case CollectiveSent::Shares:
      return shares;
    case CollectiveSent::SharesTwice:
      return 2 * shares;
    case CollectiveSent::All:
      return ranks == 1 ? 0 : bytes;
  }
  CHECK(false, "a collective of unknown traffic");
}

// Bytes of the members that are not at their flat offset from the first one.
int64_t misplaced_bytes(std::span<const TensorRef> members) {
  const std::vector<int64_t> offsets = flat_offsets(shapes_of(members));
  int64_t bytes = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const TensorRef& first = members[0];
    const TensorRef& member = members[i];
    const int64_t expected = first.offset + offsets[i] * dtype_bytes(first.dtype);
    const bool in_place = member.buffer == first.buffer && member.offset == expected;
    if (!in_place) bytes += tensor_bytes(member);
  }
  return bytes;
}

// Bytes of results that are not at the location of the operands they overwrite.
int64_t moved_bytes(std::span<const TensorRef> operands, std::span<const TensorRef> results) {
  int64_t bytes = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool same =
        operands[i].buffer == results[i].buffer && operands[i].offset == results[i].offset;
    if (!same) bytes += tensor_bytes(results[i]);
  }
  return bytes;
}

int64_t flat_packing_bytes(const Step& step) {
  const bool gathers = info_of(step).full == CollectiveSide::Results;
  if (!gathers && info_of(step).sharded) return misplaced_bytes(step.operands);
  const size_t overwritten = find_op(step.op)->parsed().operand_index(gathers ? "into" : "x");
  return misplaced_bytes(step.results) +
         moved_bytes(std::span(step.operands).subspan(overwritten), step.results);
}

// Kernels that read strided memory have no workspace.
int64_t packing_bytes(const Step& step, int64_t ranks) {
  const Call call = call_of(step);
  if (is_flat_collective(call)) return flat_packing_bytes(step);
  return step.workspace >= 0 ? packed_bytes(call, ranks) : 0;
}

}  // namespace

bool is_collective(const Step& step) {
  const OpDef* op = find_op(step.op);
  return op != nullptr && op->collective != nullptr;
}

std::string axis_of(const Step& step) {
  return call_of(step).text_attr("axis");
}

std::vector<CollectiveVolume> collective_volumes(const Plan& plan, ProgramKind program) {
  std::map<std::pair<std::string, std::string>, CollectiveVolume> volumes;
  for (const Step& step : plan.program(program)) {
    if (!is_collective(step)) continue;
    const std::string axis = axis_of(step);
    CollectiveVolume& volume = volumes[{step.op, axis}];
    volume.kind = step.op;
    volume.axis = axis;
    volume.ranks = plan.mesh.axis_size(axis);
    const int64_t bytes = flat_bytes(step, volume.ranks);
    volume.smallest = volume.calls == 0 ? bytes : std::min(volume.smallest, bytes);
    volume.largest = std::max(volume.largest, bytes);
    volume.sent_bytes += sent_bytes(step, volume.ranks);
    volume.packed_bytes += packing_bytes(step, volume.ranks);
    ++volume.calls;
  }
  std::vector<CollectiveVolume> list;
  for (auto& [key, volume] : volumes) list.push_back(std::move(volume));
  return list;
}

int64_t packing_bytes(const Plan& plan, ProgramKind program) {
  int64_t bytes = 0;
  for (const CollectiveVolume& volume : collective_volumes(plan, program)) {
    bytes += volume.packed_bytes;
  }
  return bytes;
}

std::vector<BucketSize> buckets_of(const Plan& plan) {
  std::vector<BucketSize> buckets;
  for (const Binding& param : plan.params) {
    if (param.axis.empty()) continue;
    buckets.push_back({param.name, plan.mesh.axis_size(param.axis) * tensor_bytes(param.tensor)});
  }
  if (!buckets.empty()) return buckets;
  for (const Step& step : plan.program(ProgramKind::Last)) {
    const bool sums = is_collective(step) && info_of(step).reduces && !info_of(step).sharded;
    if (!sums || step.phase != Phase::Backward) continue;
    const TensorRef& first = operand_of(step, "x");
    const size_t more = step.operands.size() - 1;
    buckets.push_back({cat(plan.buffers.at(static_cast<size_t>(first.buffer)).name,
                           more > 0 ? cat("+", more) : std::string()),
                       flat_bytes(step, plan.mesh.axis_size(axis_of(step)))});
  }
  return buckets;
}

}  // namespace weft

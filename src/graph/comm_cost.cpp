// Counts the bytes of each collective and finds the group of ranks along an axis.
#include "graph/comm_cost.h"

#include <algorithm>

#include "graph/cost.h"
#include "graph/local_call.h"
#include "graph/ops/ops.h"

namespace weft {

namespace {

double bytes_of(const std::vector<TensorType>& types, const Mesh& mesh) {
  double bytes = 0;
  for (const TensorType& type : types) bytes += static_cast<double>(local_bytes(type, mesh));
  return bytes;
}

// The stride of a joint axis is that of its innermost axis. Where other axes lie between the joint
// ones, no single stride is exact. It is then taken so large that the group spans the same block of
// ranks, from its outermost to its innermost axis: so no host is missed, though some may be counted
// on which the group has no rank.
RankGroup group_of(const Mesh& mesh, std::string_view axis) {
  const std::vector<std::string_view> joint = joint_axes(axis);
  RankGroup group{.size = mesh.axis_size(axis), .stride = 1, .ranks = mesh.ranks()};
  const std::vector<MeshAxis> axes = mesh.numbering_of(axis);
  size_t found = 0;
  for (size_t i = axes.size(); i-- > 0 && found < joint.size();) {
    if (std::find(joint.begin(), joint.end(), axes[i].name) != joint.end()) {
      ++found;
    } else {
      group.stride *= axes[i].size;
    }
  }
  return group;
}

bool is_flat_collective(const OpDef& op, const Attrs& attrs) {
  if (op.collective == nullptr) return false;
  if (op.collective->layout != CollectiveLayout::ByDim) {
    return op.collective->layout == CollectiveLayout::Flat;
  }
  return std::get<int64_t>(attrs.at(op.parsed().attr_index("dim"))) < 0;
}

// Bytes of the tensor unless the ranges of its dim that each rank has are contiguous. The dim is
// that of the attribute, if there is one and the call gives it.
int64_t strided_bytes(const Call& local, const TensorType& type, std::string_view attr,
                      int64_t ranks) {
  const int64_t dim = attr.empty() ? -1 : local.int_attr(attr);
  if (dim < 0) return 0;
  const auto at = type.shape.begin() + dim;
  const bool outermost =
      std::all_of(type.shape.begin(), at, [](int64_t size) { return size == 1; });
  const size_t ranges = shard_ranges(local.text_attr("axis"), *at, ranks, 0).size();
  return outermost && ranges == 1 ? 0 : type.bytes();
}

// The bytes for which a link takes as long as if (n-1)/n of them were sent.
double link_bytes(CollectiveSent sent, double bytes, int64_t ranks) {
  if (sent != CollectiveSent::All || ranks == 1) return bytes;
  return bytes * static_cast<double>(ranks) / static_cast<double>(ranks - 1);
}

}  // namespace

const OpDef* start_of(const OpDef& op) {
  const auto ops = all_ops();
  const auto found =
      std::find_if(ops.begin(), ops.end(), [&](const OpDef* one) { return one->starts == &op; });
  return found == ops.end() ? nullptr : *found;
}

bool is_gather(const OpDef& op) {
  return op.collective != nullptr && op.collective->full == CollectiveSide::Results;
}

bool is_reduction(const OpDef& op) {
  return op.collective != nullptr && op.collective->reduces;
}

bool is_flat_collective(const Call& call) {
  return is_flat_collective(*call.op, call.attrs);
}

bool is_flat_collective(const Node& node) {
  return is_flat_collective(*node.op, node.attrs);
}

int64_t local_bytes(const TensorType& type, const Mesh& mesh) {
  return count(local_shape(type, mesh)) * dtype_bytes(type.dtype);
}

double collective_bytes(const Call& call, const Mesh& mesh) {
  return bytes_of(is_gather(*call.op) ? call.results : call.operands, mesh);
}

int64_t packed_bytes(const Call& local, int64_t ranks) {
  const CollectiveInfo* collective = local.op->collective;
  if (collective == nullptr || ranks == 1) return 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < std::min(local.operands.size(), local.results.size()); ++i) {
    bytes += strided_bytes(local, local.operands[i], collective->operand_dim, ranks);
  }
  for (const TensorType& type : local.results) {
    bytes += strided_bytes(local, type, collective->result_dim, ranks);
  }
  return bytes;
}

Link axis_link(const Mesh& mesh, std::string_view axis, const DeviceSpec& device) {
  return find_link(device, group_of(mesh, axis));
}

bool on_one_host(const Mesh& mesh, std::string_view axis, const DeviceSpec& device) {
  return hosts_of(device, group_of(mesh, axis)) == 1;
}

double local_seconds(const Call& call, const Mesh& mesh, const DeviceSpec& device) {
  if (call.op->traits.source || call.op == &kWait) return 0;
  const CollectiveInfo* collective = call.op->collective;
  if (collective == nullptr) return predicted_seconds(local_call(call, mesh), device);
  const std::string& axis = call.text_attr("axis");
  const int64_t ranks = mesh.axis_size(axis);
  const Link link = axis_link(mesh, axis, device);
  const double bytes = link_bytes(collective->sent, collective_bytes(call, mesh), ranks);
  const double sent = link.*collective->latency + bytes / link.*collective->bandwidth;
  if (device.ranks_share_memory) return sent;  // the ranks read each other's strided memory
  const auto packed = static_cast<double>(packed_bytes(local_call(call, mesh), ranks));
  return sent + 2 * packed / device.memory_bandwidth;
}

}  // namespace weft

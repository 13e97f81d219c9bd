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
  size_t found = 0;
  for (size_t i = mesh.axes.size(); i-- > 0 && found < joint.size();) {
    if (std::find(joint.begin(), joint.end(), mesh.axes[i].name) != joint.end()) {
      ++found;
    } else {
      group.stride *= mesh.axes[i].size;
    }
  }
  return group;
}

bool is_flat_collective(const OpDef& op, const Attrs& attrs) {
  if (is_all_reduce(op)) return true;
  if (!is_gather(op) && !is_reduction(op)) return false;
  return std::get<int64_t>(attrs.at(op.parsed().attr_index("dim"))) < 0;
}

}  // namespace

const OpDef* start_of(const OpDef& op) {
  const auto ops = all_ops();
  const auto found =
      std::find_if(ops.begin(), ops.end(), [&](const OpDef* one) { return one->starts == &op; });
  return found == ops.end() ? nullptr : *found;
}

bool is_gather(const OpDef& op) {
  return &collective_of(op) == &kAllGather;
}

bool is_all_reduce(const OpDef& op) {
  return &collective_of(op) == &kAllReduce;
}

bool is_reduction(const OpDef& op) {
  return &collective_of(op) == &kReduceScatter || is_all_reduce(op);
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

Link axis_link(const Mesh& mesh, std::string_view axis, const DeviceSpec& device) {
  return find_link(device, group_of(mesh, axis));
}

bool on_one_host(const Mesh& mesh, std::string_view axis, const DeviceSpec& device) {
  return hosts_of(device, group_of(mesh, axis)) == 1;
}

double local_seconds(const Call& call, const Mesh& mesh, const DeviceSpec& device) {
  if (call.op->traits.source || call.op == &kWait) return 0;
  if (!is_gather(*call.op) && !is_reduction(*call.op)) {
    return predicted_seconds(local_call(call, mesh), device);
  }
  const Link link = axis_link(mesh, call.text_attr("axis"), device);
  const double bytes = collective_bytes(call, mesh);
  if (is_all_reduce(*call.op)) return link.sum_latency + bytes / link.sum_bandwidth;
  return is_gather(*call.op) ? link.gather_latency + bytes / link.gather_bandwidth
                             : link.scatter_latency + bytes / link.scatter_bandwidth;
}

}  // namespace weft

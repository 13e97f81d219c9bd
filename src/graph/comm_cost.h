// Time of collectives from the links of a device spec: latency plus bytes over bandwidth of the
// group of ranks that an axis of the mesh makes.
#pragma once

#include "config/device_spec.h"
#include "graph/graph.h"

namespace weft {

// A collective may be split into a start, which is an op of its own, and a wait.
inline bool is_start(const OpDef& op) {
  return op.starts != nullptr;
}
// The collective that the op starts, or the op itself.
inline const OpDef& whole_of(const OpDef& op) {
  return is_start(op) ? *op.starts : op;
}
// The op that starts this collective; nullptr where the op is none, or only a part of one.
const OpDef* start_of(const OpDef& op);

// Whether the op is a collective itself, as one call or its start; wait is not.
bool is_gather(const OpDef& op);
bool is_all_reduce(const OpDef& op);
bool is_reduction(const OpDef& op);  // all_reduce or reduce_scatter

// Bytes that one rank holds of a value.
int64_t local_bytes(const TensorType& type, const Mesh& mesh);

// Bytes of the whole tensors that a collective gathers, scatters or sums, as links count them.
double collective_bytes(const Call& call, const Mesh& mesh);

// The link over which the ranks of the axis exchange.
Link axis_link(const Mesh& mesh, std::string_view axis, const DeviceSpec& device);

// Whether the ranks of each group along the axis share a host.
bool on_one_host(const Mesh& mesh, std::string_view axis, const DeviceSpec& device);

// Predicted time of a collective, or of any other call on one rank.
double local_seconds(const Call& call, const Mesh& mesh, const DeviceSpec& device);

}  // namespace weft

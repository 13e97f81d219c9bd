// Predicts the time of collectives from the links of a device spec: latency plus bytes over
// bandwidth, for the group of ranks along a mesh axis.
#pragma once

#include "config/device_spec.h"
#include "graph/collective.h"
#include "graph/graph.h"

namespace weft {

// A collective may be split into a start, which is a separate op, and a wait.
inline bool is_start(const OpDef& op) {
  return op.starts != nullptr;
}
// The collective that the op starts, or the op itself.
inline const OpDef& collective_of(const OpDef& op) {
  return is_start(op) ? *op.starts : op;
}
// The op that starts this collective; nullptr if the op is not a collective, or is itself a start
// or wait.
const OpDef* start_of(const OpDef& op);

// Whether the op is a collective, blocking or started, that gathers tensors or sums them; false for
// wait.
bool is_gather(const OpDef& op);
bool is_reduction(const OpDef& op);

// Whether it is a collective of flat tensors, whose members lie in one buffer.
bool is_flat_collective(const Call& call);
bool is_flat_collective(const Node& node);

// Bytes of a value on one rank.
int64_t local_bytes(const TensorType& type, const Mesh& mesh);

// Bytes of the full tensors that a collective gathers, scatters or sums; link costs are defined per
// such byte.
double collective_bytes(const Call& call, const Mesh& mesh);

// Bytes that a transport which sends contiguous memory only copies to pack the messages of a
// collective along a dim, or to unpack them, on one rank; the call has its local types.
int64_t packed_bytes(const Call& local, int64_t ranks);

// The link between the ranks of the axis.
Link axis_link(const Mesh& mesh, std::string_view axis, const DeviceSpec& device);

// Whether all ranks of each group along the axis are on one host.
bool on_one_host(const Mesh& mesh, std::string_view axis, const DeviceSpec& device);

// Predicted time of a collective, or of any other call on one rank's local shapes.
double local_seconds(const Call& call, const Mesh& mesh, const DeviceSpec& device);

}  // namespace weft

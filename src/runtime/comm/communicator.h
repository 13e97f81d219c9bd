// What ranks do together: collectives over a mesh axis, plain or joint, an arena that peers can
// reach, heartbeats for the watchdog, and a shared way to fail. A collective either blocks its
// thread (which drives one stream, so it overlaps with computation) or queues work on the device's
// stream. The ranks of a group make the same calls in the same order per axis and channel.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "graph/type.h"
#include "plan/kernel.h"
#include "plan/plan.h"
#include "runtime/comm/channels.h"

namespace weft {

class Device;
class Stream;
class Transfer;

// A rank's position on the mesh: ranks are numbered row-major over the axes, outermost first.
struct RankInfo {
  Mesh mesh;
  int64_t rank = 0;

  // The rank's index along the axis or joint axis, which must exist.
  int64_t coordinate(std::string_view axis) const;
  // The ranks that differ from this one only along the axis, or along any axis of a joint one, in
  // order, including this one.
  std::vector<int64_t> group(std::string_view axis) const;
};

// An artificially slow link, for tests and teaching: a collective takes at least the latency plus
// its bytes divided by the bandwidth; 0 bytes per second means no limit.
struct LinkDelay {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

struct CommOptions {
  double timeout_seconds =
      10;  // time without a heartbeat after which an awaited rank counts as hung
  LinkDelay delay;
};

// Where a collective runs: over which axis, and on which stream of the plan. Streams run
// concurrently, so each has its own channel.
struct CollectiveSite {
  std::string_view axis;
  int64_t channel = 0;
  Stream* stream = nullptr;   // of a device that runs asynchronously
  bool ordered = true;        // whether a floating-point sum must be the tree over the ranks
  void* workspace = nullptr;  // the workspace that its kernel requested from the plan
};

// Elements of `from` on each rank of a group go to `to` on others, as `transfer` says; both have
// one dtype and do not overlap.
struct MovedTensor {
  Tensor from;
  Tensor to;
  const Transfer* transfer = nullptr;
  // Of rows [sources,parts,slots,...]: their offsets [sources,parts,n] on the rank that sends them.
  // Rows beyond the last offset need not be moved.
  const Tensor* offsets = nullptr;
};

// The device's progress as seen by a host that waits for it.
struct DeviceLook {
  int64_t waiting_since = 0;  // start of this wait, in monotonic nanoseconds
  bool inside = false;        // whether the device is inside a collective
  bool got_further = false;   // whether a collective started or finished since the last look
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual const RankInfo& info() const = 0;
  int64_t rank() const { return info().rank; }
  int64_t ranks() const { return info().mesh.ranks(); }
  int64_t size(std::string_view axis) const { return info().mesh.axis_size(axis); }
  int64_t coordinate(std::string_view axis) const { return info().coordinate(axis); }

  // Whether other processes or threads depend on this rank: its host work then sends heartbeats,
  // and its waits end when the job does.
  virtual bool is_supervised() const { return true; }

  // Prepares the collectives of these groups, in this order, before anything is allocated and
  // outside of any recording. All ranks call it with the same list. Transports that read peers'
  // memory directly need no preparation.
  virtual void make_groups(std::span<const CollectiveGroup>) {}

  // One block of memory that peers can reach. All ranks call it with the same size, in the same
  // order. Every tensor of a collective lies at the same offset in such a block on every rank,
  // except for an all_reduce of at most 512 bytes. Release is not collective.
  virtual void* allocate(int64_t bytes, Device& device) = 0;
  // One block shared by the ranks along the axis, for results of all_gather over that axis only.
  // Each rank writes its own part and reads all of it, so a gather moves only the shards. All ranks
  // call it, as for allocate; release is the same.
  virtual void* allocate_shared(std::string_view axis, int64_t bytes, Device& device) = 0;
  virtual void release(void* memory, Device& device) = 0;

  // The next three collectives take a flat tensor as its members: they lie in it in order, each
  // aligned to the next multiple of kFlatBlock. Members may lie anywhere in the block. The gaps
  // between members are neither read nor written.

  // Gathers the group's shards of a flat tensor into its members. `shard` may have another dtype:
  // each rank converts its own part. Throws if the shards are too short for the members.
  virtual void all_gather(const CollectiveSite& site, const Tensor& shard,
                          std::span<const Tensor> members) = 0;

  // Sums the members over the group in f32, as a balanced binary tree over the ranks in order, and
  // leaves this rank's part in `shard`, with zeros in the gaps between members. For a site that is
  // not ordered, the transport chooses the order of the sum.
  virtual void reduce_scatter(const CollectiveSite& site, std::span<const Tensor> members,
                              const Tensor& shard) = 0;

  // Replaces each tensor by its sum over the group: floating-point types as in reduce_scatter, i64
  // exactly.
  virtual void all_reduce(const CollectiveSite& site, std::span<const Tensor> tensors) = 0;

  // The two below move shards along a dim of one tensor (runtime/comm/dim_layout.h). Rank i of the
  // group has range i of the dim; where the dim does not divide, the last ranges are shorter or
  // empty, and a shard is padded to the length of the first.

  // Gathers the group's shards into `full`, of the same dtype. The padding of shards is not read.
  virtual void all_gather_dim(const CollectiveSite& site, const Tensor& shard, const Tensor& full,
                              int64_t dim) = 0;

  // Sums `full` over the group, as reduce_scatter does, and leaves this rank's range in `shard`,
  // with zeros in its padding.
  virtual void reduce_scatter_dim(const CollectiveSite& site, const Tensor& full,
                                  const Tensor& shard, int64_t dim) = 0;

  // Moves the tensors between the ranks of the group, all of them together.
  virtual void transfer(const CollectiveSite& site, std::span<const MovedTensor> tensors) = 0;

  // Waits for all ranks of the mesh. Host thread only, like exchange.
  virtual void barrier() = 0;

  // Gathers `own` of every rank, in rank order, into `all`, which holds ranks x size bytes. For
  // agreement between hosts (plan hashes, stop requests), not for data.
  virtual void exchange(std::span<const char> own, std::span<char> all) = 0;

  // Progress for the watchdog and for messages about a lost rank: the current training step, and
  // what was just started on a channel. Both count as heartbeats.
  virtual void start_step(int64_t step) = 0;
  virtual void report_progress(int64_t channel, std::string_view where) = 0;

  // Called periodically by the host thread while it waits for its device: sends heartbeats, and
  // throws DeviceError once the job cannot continue. The caller leaves out the parts of `look` that
  // the transport observes itself.
  virtual void watch(const DeviceLook& look) = 0;

  // Why the job cannot continue, once any rank has aborted.
  virtual std::optional<std::string> poll_error() const = 0;
  // Aborts the job: every rank that waits, now or later, throws DeviceError with this reason.
  virtual void abort(std::string_view reason) = 0;
};

}  // namespace weft

// What a rank can do together with the others: collectives over one mesh axis, an arena that peers
// can reach, marks of progress for the watchdog, and one way to fail together. Collectives block
// the thread that makes them (a stream of its own), so they overlap with computation, or queue work
// on the device's stream. The ranks of a group make the same calls in the same order per axis and
// channel.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "graph/type.h"
#include "plan/kernel.h"
#include "plan/plan.h"

namespace weft {

class Device;
class Stream;

// A rank's place on the mesh: ranks are numbered row-major over the axes, outermost first.
struct RankInfo {
  Mesh mesh;
  int64_t rank = 0;

  // The rank's index along the axis; throws UserError for an axis that is not there.
  int64_t coordinate(std::string_view axis) const;
  // The ranks that differ from this one along the axis alone, in order, this one included.
  std::vector<int64_t> group(std::string_view axis) const;
};

// An artificially slow link, for tests and learners: a collective takes at least the latency and
// the time its bytes take; 0 bytes per second means no limit.
struct LinkDelay {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

struct CommOptions {
  double timeout_seconds = 10;  // silence of a rank that others wait for, until it counts as hung
  LinkDelay delay;
};

// Where a collective runs: over which axis, and on which stream of the plan. Streams run beside
// each other, so each has a channel of its own.
struct CollectiveSite {
  std::string_view axis;
  int64_t channel = 0;
  Stream* stream = nullptr;   // of a device that works on its own
  bool ordered = true;        // whether a floating sum must be the tree over the ranks
  void* workspace = nullptr;  // what its kernel asked the plan for
};

// The channel of collectives and marks that the host's thread makes: no stream of a plan has it.
inline constexpr int64_t kHostChannel = 3;

// What a host that waits for its device sees of it.
struct DeviceLook {
  int64_t waiting_since = 0;  // when this wait began, in monotonic nanoseconds
  bool inside = false;        // whether the device is in a collective
  bool got_further = false;   // whether it has begun or ended one since the last look
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual const RankInfo& info() const = 0;
  int64_t rank() const { return info().rank; }
  int64_t ranks() const { return info().mesh.ranks(); }
  int64_t size(std::string_view axis) const { return info().mesh.axis_size(axis); }
  int64_t coordinate(std::string_view axis) const { return info().coordinate(axis); }

  // Makes what the collectives of these groups need, in this order, before anything is allocated
  // and outside of any recording. All ranks call it with the same list. Transports that reach
  // peers' memory need nothing.
  virtual void make_groups(std::span<const CollectiveGroup>) {}

  // One block of memory that peers can reach. All ranks call it with the same size, in the same
  // order. Every tensor of a collective lies at the same place of such a block on every rank,
  // except all_reduce of at most 512 bytes. Release is not collective.
  virtual void* allocate(int64_t bytes, Device& device) = 0;
  // One block that the ranks along the axis have in common: results of all_gather over that axis
  // may lie there, and nothing else. Each rank writes its part and all read the whole, so that a
  // gather moves no more than that. All ranks call it, as allocate; the same release.
  virtual void* allocate_common(std::string_view axis, int64_t bytes, Device& device) = 0;
  virtual void release(void* memory, Device& device) = 0;

  // In the three collectives a flat is given as its members: they lie in it one after the other,
  // each from the next multiple of kFlatBlock on. Members may lie anywhere in the block. What lies
  // between members is neither read nor written.

  // Joins the group's shards of a flat into its members. `shard` may have another dtype: each rank
  // converts its own part. Throws if the shards are too short for the members.
  virtual void all_gather(const CollectiveSite& site, const Tensor& shard,
                          std::span<const Tensor> members) = 0;

  // Sums the members over the group in f32, as a balanced binary tree over the ranks in order, and
  // leaves this rank's cut in `shard`; zero where no member lies. A site that is not ordered leaves
  // the order of the sum to the transport.
  virtual void reduce_scatter(const CollectiveSite& site, std::span<const Tensor> members,
                              const Tensor& shard) = 0;

  // Replaces each tensor by its sum over the group: floating types as reduce_scatter does, i64
  // exactly.
  virtual void all_reduce(const CollectiveSite& site, std::span<const Tensor> tensors) = 0;

  // Waits for all ranks of the mesh. For the host's thread, as is exchange.
  virtual void barrier() = 0;

  // Collects `own` of every rank, in rank order, into `all`: ranks times the size. For agreement
  // between hosts (plan hashes, stop requests), not for data.
  virtual void exchange(std::span<const char> own, std::span<char> all) = 0;

  // Marks for the watchdog and for messages about a lost rank: the training step this rank is in,
  // and what it has just started on a channel. Marks count as signs of life.
  virtual void start_step(int64_t step) = 0;
  virtual void mark(int64_t channel, std::string_view where) = 0;

  // For the host's thread, now and then while it waits for its device: gives signs of life, and
  // throws DeviceError once the job cannot go on. What of `look` a transport sees by itself the
  // caller leaves out.
  virtual void watch(const DeviceLook& look) = 0;

  // Why the job cannot go on, once any rank has aborted.
  virtual std::optional<std::string> poll_error() const = 0;
  // Ends the job: every rank that waits, now or later, throws DeviceError with this reason.
  virtual void abort(std::string_view reason) = 0;
};

}  // namespace weft

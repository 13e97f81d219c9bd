// A rank's NCCL communicators: one per mesh axis and stream of the plan, so that a gather and a
// reduction can run at the same time. All are created before the arena, in the order in which the
// plan first uses them. NCCL requires every rank to launch the operations of all communicators of a
// GPU in the same order. That is the plan's order, queued by one host thread, with NCCL's implicit
// launch order on (library.h).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl/library.h"

namespace weft::nccl {

// One communicator, and this rank's index in it.
struct Group {
  ncclComm_t comm = nullptr;  // null for a group of one
  int64_t rank = 0;
  int64_t size = 1;
};

class Groups {
 public:
  explicit Groups(Communicator& hosts) : hosts_(hosts) {}
  // Destroys the communicators together with the other ranks, or alone if the job has failed.
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // Creates the missing groups, together with all other ranks.
  void make(std::span<const CollectiveGroup> groups);

  // The group of a site. The host's own collectives run while no other does, so they use any group
  // of the axis.
  const Group& at(const CollectiveSite& site) const;

  // Throws DeviceError when an operation in flight has failed; `places` says, by channel, what the
  // GPU is executing.
  void check_errors(std::span<const std::string_view> places) const;

  // Makes the GPU abandon what it waits for. NCCL takes a while to clean up, or never finishes
  // where graphs still hold its operations, so this happens on separate threads.
  void abort();

 private:
  struct Entry {
    CollectiveGroup key;
    Group group;
  };
  Group connect_group(std::string_view axis);

  Communicator& hosts_;
  std::vector<Entry> groups_;
  bool aborted_ = false;
};

}  // namespace weft::nccl

// The communicators of NCCL that a rank is in: one for each mesh axis and stream of the plan, so
// that a gather and a reduction can run at the same time. All are made before the arena, in the
// order in which the plan first uses them. NCCL wants the operations of all communicators of a GPU
// launched in one order on every rank: the plan's order, queued by one host thread, with NCCL's
// implicit launch order on (library.h).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl/library.h"

namespace weft::nccl {

// One communicator, and this rank's place in it.
struct Group {
  ncclComm_t comm = nullptr;  // null for a group of one
  int64_t rank = 0;
  int64_t size = 1;
};

class Groups {
 public:
  explicit Groups(Communicator& hosts) : hosts_(hosts) {}
  // Ends the communicators together with the other ranks, or alone where the job has failed.
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // Makes the groups that are not there yet, together with all other ranks.
  void make(std::span<const CollectiveGroup> groups);

  // The group of a site. The host's own collectives run when no other does, in any group of the
  // axis.
  const Group& at(const CollectiveSite& site) const;

  // Throws DeviceError when an operation has failed on the way; `places` says, by channel, what the
  // GPU is in.
  void check_errors(std::span<const std::string_view> places) const;

  // Makes the GPU give up what it waits for. The library takes a while to clean up, or never ends
  // where graphs still hold its operations, so that threads of their own do it.
  void abort();

 private:
  struct Entry {
    CollectiveGroup key;
    Group group;
  };
  Group join_group(std::string_view axis);

  Communicator& hosts_;
  std::vector<Entry> groups_;
  bool aborted_ = false;
};

}  // namespace weft::nccl

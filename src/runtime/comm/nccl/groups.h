// The communicators of NCCL that a rank is in: one for each mesh axis and stream of the plan, so
// that collectives on two streams neither wait for each other nor have to agree on an order. Made
// when first needed, which is at the same step of the plan on all ranks.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

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

  // The group of a site; the host's own collectives run when no other does, in any group of the
  // axis.
  const Group& at(const CollectiveSite& site);

  // Throws DeviceError when an operation has failed on the way; `places` says, by channel, what the
  // GPU is in.
  void check_errors(std::span<const std::string_view> places) const;

  // Makes the GPU give up what it waits for. The library takes a while to clean up, or never ends
  // where graphs still hold its operations, so that threads of their own do it.
  void abort();

 private:
  using Key = std::pair<std::string, int64_t>;  // axis, channel
  Group make(std::string_view axis);

  Communicator& hosts_;
  std::map<Key, Group> groups_;
  bool aborted_ = false;
};

}  // namespace weft::nccl

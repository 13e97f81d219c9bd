#include "runtime/comm/nccl/groups.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/comm/control.h"
#include "runtime/cuda/device/check.h"

namespace weft::nccl {

namespace {

constexpr std::chrono::milliseconds kNap{5};

// Creates a communicator on a separate thread: NCCL waits for the other ranks without noticing that
// one is lost. `hosts` does notice, and throws.
ncclComm_t connect(Communicator& hosts, const ncclUniqueId& id, int64_t size, int64_t rank) {
  struct Connected {
    ncclComm_t comm = nullptr;
    ncclResult_t result = ncclSuccess;
    std::string error;
  };
  int device = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  std::promise<Connected> promise;
  std::future<Connected> future = promise.get_future();
  std::thread([promise = std::move(promise), id, size, rank, device]() mutable {
    Connected connected;
    cudaSetDevice(device);
    connected.result = functions().comm_init_rank(&connected.comm, static_cast<int>(size), id,
                                                  static_cast<int>(rank));
    if (connected.result != ncclSuccess) connected.error = error_text(connected.result);
    promise.set_value(connected);
  }).detach();
  const int64_t since = monotonic_ns();
  while (future.wait_for(kNap) != std::future_status::ready) {
    hosts.watch({.waiting_since = since, .inside = true});
  }
  const Connected connected = future.get();
  if (connected.result == ncclSuccess) return connected.comm;
  throw DeviceError(cat("nccl: connecting ", size, " ranks failed: ", connected.error));
}

}  // namespace

Groups::~Groups() {
  if (aborted_) return;
  if (std::uncaught_exceptions() > 0 || hosts_.poll_error()) {
    abort();
    return;
  }
  for (const auto& [key, group] : groups_) {
    if (group.comm != nullptr) functions().comm_destroy(group.comm);
  }
}

void Groups::make(std::span<const CollectiveGroup> groups) {
  for (const CollectiveGroup& key : groups) {
    const bool known = std::any_of(groups_.begin(), groups_.end(),
                                   [&](const Entry& entry) { return entry.key == key; });
    if (!known) groups_.push_back({key, connect_group(key.axis)});
  }
}

const Group& Groups::at(const CollectiveSite& site) const {
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Entry& entry) {
    return entry.key.axis == site.axis &&
           (entry.key.stream == site.channel || site.channel == kHostChannel);
  });
  CHECK(found != groups_.end(), "no NCCL communicator for axis ", site.axis, ", stream ",
        site.channel);
  return found->group;
}

// The first rank of each group creates its id. All ranks create such a group now, so one exchange
// between all of them distributes the ids of every group.
Group Groups::connect_group(std::string_view axis) {
  Group group{.rank = hosts_.coordinate(axis), .size = hosts_.size(axis)};
  if (group.size == 1) return group;
  ncclUniqueId own{};
  if (group.rank == 0) NCCL_CHECK(functions().get_unique_id(&own));
  std::vector<ncclUniqueId> all(static_cast<size_t>(hosts_.ranks()));
  hosts_.exchange({own.internal, sizeof own.internal},
                  {all.front().internal, all.size() * sizeof own.internal});
  const auto leader = static_cast<size_t>(hosts_.info().group(axis).front());
  group.comm = connect(hosts_, all[leader], group.size, group.rank);
  return group;
}

void Groups::check_errors(std::span<const std::string_view> places) const {
  for (const auto& [key, group] : groups_) {
    if (group.comm == nullptr || aborted_) continue;
    ncclResult_t error = ncclSuccess;
    NCCL_CHECK(functions().comm_get_async_error(group.comm, &error));
    if (error == ncclSuccess || error == ncclInProgress) continue;
    const std::string_view place = places[static_cast<size_t>(key.stream)];
    check(error, cat("a collective in flight", place.empty() ? "" : " in ", place));
  }
}

void Groups::abort() {
  if (std::exchange(aborted_, true)) return;
  int device = 0;
  cudaGetDevice(&device);
  for (const auto& [key, group] : groups_) {
    if (group.comm == nullptr) continue;
    std::thread([comm = group.comm, device] {
      cudaSetDevice(device);
      functions().comm_abort(comm);
    }).detach();
  }
}

}  // namespace weft::nccl

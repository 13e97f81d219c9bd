#include "runtime/comm/host_work.h"

#include <chrono>

namespace weft {

HostWork::HostWork(Communicator& comm, std::string what) : comm_(comm), what_(std::move(what)) {
  if (comm_.is_supervised()) thread_ = std::thread([this] { beat(); });
}

HostWork::~HostWork() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_one();
  thread_.join();
  comm_.report_progress(kHostChannel, "");
}

void HostWork::beat() {
  constexpr std::chrono::milliseconds kBetweenBeats{50};
  std::unique_lock lock(mutex_);
  do {
    comm_.report_progress(kHostChannel, what_);
  } while (!wake_.wait_for(lock, kBetweenBeats, [this] { return over_; }));
}

}  // namespace weft

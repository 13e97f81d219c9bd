// Work of a rank's host that makes no marks of its own and may take longer than the watchdog is
// patient: compiling, reading and writing weights. A thread of its own marks the rank as alive as
// long as that lasts; a stopped process stops it too, so that a hang is still found.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/comm/communicator.h"

namespace weft {

class HostWork {
 public:
  // Gives signs of life until it is destroyed; `what` is for messages. Without ranks it does
  // nothing.
  HostWork(Communicator* comm, std::string what);
  ~HostWork();
  HostWork(const HostWork&) = delete;
  HostWork& operator=(const HostWork&) = delete;

 private:
  void beat();

  Communicator* comm_;
  std::string what_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace weft

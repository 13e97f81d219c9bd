// Host work that sends no heartbeats itself and may outlast the watchdog's timeout: compiling,
// reading and writing weights. A helper thread sends heartbeats meanwhile. It stops together with
// the process, so a hang is still detected.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/comm/communicator.h"

namespace weft {

class HostWork {
 public:
  // Sends heartbeats until destroyed; `what` is for messages. Does nothing if nobody waits
  // for them.
  HostWork(Communicator& comm, std::string what);
  ~HostWork();
  HostWork(const HostWork&) = delete;
  HostWork& operator=(const HostWork&) = delete;

 private:
  void beat();

  Communicator& comm_;
  std::string what_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace weft

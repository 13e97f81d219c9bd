// How long a rank has been silent, as seen by the ranks that wait for it. Also the wait of a host
// for its device, whose collectives wait for other ranks in turn.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/control.h"

namespace weft {

// Samples the awaited rank. A process that waits, is stopped or is deadlocked uses almost no
// processor time, whereas one that computes gets its share even on a busy machine.
class HeartbeatAge {
 public:
  // Nanoseconds since the rank was last seen alive, by its heartbeat or because it computed.
  int64_t of(const Control& control, int64_t rank);

 private:
  int64_t rank_ = -1;
  int64_t looked_ = 0;
  int64_t used_ = 0;
  int64_t computed_ = 0;
};

// A rank's watchdog while its device works: the rank is alive as long as the device computes. When
// a collective there makes no progress, it finds out why.
class DeviceWait {
 public:
  // Throws DeviceError when the job is aborted, and aborts it when the launcher is gone, a peer has
  // exited or is silent, or no rank makes progress. It need not be called at a fixed rate, as a
  // busy host looks rarely.
  void look(const Control& control, int64_t rank, const DeviceLook& seen,
            const WaitOptions& options);

 private:
  void find_cause(const Control& control, int64_t rank, int64_t blocked_since,
                  const WaitOptions& options);

  std::map<int64_t, HeartbeatAge> ages_;  // by rank
  int64_t got_further_ = 0;               // when the device last made progress
};

// "1.5 s".
std::string seconds_text(double seconds);

}  // namespace weft

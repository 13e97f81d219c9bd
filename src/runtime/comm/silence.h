// How long a rank has given no sign of life, as the ranks that wait for it see it, and the wait of
// a host for its device, whose collectives wait for other ranks in turn.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/control.h"

namespace weft {

// Looks now and then at the rank that is waited for. A process that waits, is stopped or is locked
// up uses next to no processor time, whereas one that computes on a busy machine gets its share.
class Silence {
 public:
  // Nanoseconds since the rank last was seen alive, by its own marks or because it computed.
  int64_t of(const Control& control, int64_t rank);

 private:
  int64_t rank_ = -1;
  int64_t looked_ = 0;
  int64_t used_ = 0;
  int64_t computed_ = 0;
};

// What a rank does while its device works: it lives as long as the device computes, and finds out
// why when a collective there gets no further.
class DeviceWait {
 public:
  // Throws DeviceError when the job is aborted, and aborts it when the launcher is gone, a peer has
  // left or is silent, or no rank gets any further. How often it is called does not matter: a busy
  // host looks seldom.
  void look(const Control& control, int64_t rank, const DeviceLook& seen,
            const WaitOptions& options);

 private:
  void find_cause(const Control& control, int64_t rank, int64_t blocked_since,
                  const WaitOptions& options);

  std::map<int64_t, Silence> silences_;  // by rank
  int64_t got_further_ = 0;              // when the device was last seen to get on
};

// "1.5 s".
std::string seconds_text(double seconds);

}  // namespace weft

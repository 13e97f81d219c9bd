// Starts the ranks of a job as processes and watches over them: a rank that dies, fails or hangs
// ends the job with one clear message, and no process outlives the launcher.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/comm/shm.h"

namespace weft {

struct LaunchOptions {
  int64_t ranks = 1;
  double grace_seconds = 4;  // between an abort and the end by force of ranks that are still there
  // Whether the first stop signal lets ranks finish their step; else it ends them at once.
  bool ranks_finish_step = false;
  // Takes each message; empty: "weft: message" on standard error.
  std::function<void(const std::string&)> report;
};

// Forks the ranks and runs body(rank, job) in each; what it returns or throws becomes the rank's
// exit code. Returns when every rank is gone: 0, the code of the first rank that failed, PeerLost
// when a rank was killed, Hang when one fell silent, that of stop_code when INT, TERM or HUP ended
// it. Call it while the process has no other thread.
int launch_ranks(const LaunchOptions& options,
                 const std::function<int(int64_t rank, ShmJob& job)>& body);

}  // namespace weft

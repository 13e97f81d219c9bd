// Starts the ranks of a job as processes and supervises them: a rank that dies, fails or hangs ends
// the job with one clear message, and no process outlives the launcher.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/comm/verdict.h"

namespace weft {

struct LaunchOptions {
  int64_t ranks = 1;
  double grace_seconds = 4;  // from an abort until the remaining ranks are killed
  // Whether ranks finish their step after the first stop signal; otherwise it ends them at once.
  bool ranks_finish_step = false;
  // Receives each message; empty: prints "weft: message" on standard error.
  std::function<void(const std::string&)> report;
};

// Forks the ranks and runs body(rank, job) in each; the value it returns, or the error it throws,
// sets the rank's exit code. Returns when every rank has exited: 0, the code of the first rank that
// failed, PeerLost when a rank was killed, Hang when one stopped responding, or that of stop_code
// when INT, TERM or HUP ended the job. Call it while the process is single-threaded.
int launch_ranks(const LaunchOptions& options, const RankMain& body);

}  // namespace weft

// Requests to stop. The first INT, TERM or HUP asks a command to stop at its next safe point; a
// later INT ends the process at once. Signals that arrive together count as one request, because
// wrappers such as timeout signal both a process and its group.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <string>

#include "base/error.h"

namespace weft {

// What a signal asks for, given the signals before it.
enum class StopAction { None, Stop, EndNow };

class StopRequest {
 public:
  // Counts a signal; safe in a signal handler.
  StopAction take(int signal);

  // The first signal received; 0: none.
  int signal() const { return signal_.load(); }

 private:
  std::atomic<int> signal_{0};
  std::atomic<int64_t> since_{INT64_MAX};  // monotonic nanoseconds
};

// What the signals of this process have asked for, once they are caught.
const StopRequest& stop_request();

// From now on the first stop signal is announced and remembered, and a later INT ends the process:
// exit code 130, no partial output left. HUP stays ignored if it was, as under nohup.
void catch_stop_signals();

// The same for a rank started by a launcher: the launcher makes the announcement and sends
// kEndNowSignal to end the rank at once.
void catch_stop_signals_as_rank();
inline constexpr int kEndNowSignal = SIGUSR1;

// For commands with nothing to save: from now on a stop signal ends the process at once, with the
// exit code of stop_code and no partial output left.
void end_on_stop_signals();

// Blocks the stop signals of this thread while it lives.
class BlockStopSignals {
 public:
  BlockStopSignals();
  ~BlockStopSignals();
  BlockStopSignals(const BlockStopSignals&) = delete;
  BlockStopSignals& operator=(const BlockStopSignals&) = delete;

 private:
  sigset_t before_;
};

// Announces that the run stops after this step; safe in a signal handler.
void announce_stop(int signal);

// 130 for INT, as in shells; 75 for TERM and HUP, after which a scheduler may restart the job.
ExitCode stop_code(int signal);

// "SIGINT".
std::string signal_name(int signal);

}  // namespace weft

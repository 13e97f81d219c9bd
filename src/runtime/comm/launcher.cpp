#include "runtime/comm/launcher.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/stop.h"
#include "runtime/comm/verdict.h"

namespace weft {
namespace {

// Blocks the signals the launcher handles, and restores them.
class SignalMask {
 public:
  SignalMask() {
    sigemptyset(&watched_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&watched_, signal);
    // If HUP is ignored, as under nohup, a signalfd would still receive it.
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&watched_, SIGHUP);
    sigprocmask(SIG_BLOCK, &watched_, &before_);
  }
  ~SignalMask() { restore(); }
  SignalMask(const SignalMask&) = delete;
  SignalMask& operator=(const SignalMask&) = delete;

  void restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  const sigset_t& watched() const { return watched_; }

 private:
  sigset_t watched_, before_;
};

struct RankStart {
  int64_t rank;
  bool finishes_step;
};

[[noreturn]] void rank_main(const RankStart& start, ShmJob& job, const RankMain& body,
                            const SignalMask& mask) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  job.become_rank();
  // The launcher may have died before this rank asked to die with it.
  if (!job.launcher_alive()) ::_exit(static_cast<int>(ExitCode::PeerLost));
  if (start.finishes_step) catch_stop_signals_as_rank();
  mask.restore();
  const int code = run_rank(start.rank, job, body);
  std::fflush(nullptr);
  ::_exit(code);
}

class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, const RankMain& body)
      : options_(options), job_(options.ranks), signals_(make_signal_file()) {
    std::fflush(nullptr);
    for (int64_t rank = 0; rank < options.ranks; ++rank) start(rank, body);
  }
  // Leaves no process behind, however the launcher ends.
  ~Supervisor() {
    for (Rank& rank : ranks_) {
      if (rank.ended) continue;
      ::kill(rank.pid, SIGKILL);
      ::waitpid(rank.pid, nullptr, 0);
    }
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  int supervise();

 private:
  struct Rank {
    pid_t pid = 0;
    bool ended = false;
    bool forced = false;  // killed by the launcher
    int status = 0;
  };

  Descriptor make_signal_file() {
    Descriptor file(::signalfd(-1, &mask_.watched(), SFD_CLOEXEC | SFD_NONBLOCK));
    if (file.get() < 0) throw DeviceError(cat("launcher: signalfd: ", reason_of(errno)));
    return file;
  }
  void start(int64_t rank, const RankMain& body);
  bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });
  }
  void read_signals();
  void tell_ranks(int signal) const;
  void force_ranks();
  void reap();
  void note_end(int64_t index);
  void enforce();
  int verdict();
  int blame(const Verdict& verdict);
  void name_cause(const std::string& message);
  void report(const std::string& message) const;

  const LaunchOptions& options_;
  SignalMask mask_;
  ShmJob job_;
  Descriptor signals_;
  std::vector<Rank> ranks_;
  std::string loss_;  // how the first lost rank died; empty: none was lost
  bool cause_named_ = false;
  int64_t abort_seen_ = 0;  // when the launcher noticed the abort; 0: not yet
  StopRequest stop_;
  int end_signal_ = 0;    // the signal that made the launcher end the ranks at once; 0: none
  int64_t end_seen_ = 0;  // when it arrived
};

void Supervisor::start(int64_t rank, const RankMain& body) {
  const pid_t pid = ::fork();
  if (pid == 0) rank_main({rank, options_.ranks_finish_step}, job_, body, mask_);
  if (pid < 0) throw DeviceError(cat("launcher: cannot fork rank ", rank, ": ", reason_of(errno)));
  ranks_.push_back({.pid = pid});
}

int Supervisor::supervise() {
  constexpr int kTickMilliseconds = 50;
  while (!all_ended()) {
    pollfd wake{.fd = signals_.get(), .events = POLLIN, .revents = 0};
    ::poll(&wake, 1, kTickMilliseconds);
    read_signals();
    reap();
    enforce();
  }
  return verdict();
}

void Supervisor::read_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) continue;
    const auto signal = static_cast<int>(info.ssi_signo);
    const StopAction action = stop_.take(signal);
    if (action == StopAction::None) continue;
    if (action == StopAction::Stop && options_.ranks_finish_step) {
      announce_stop(signal);
      tell_ranks(signal);  // harmless for ranks that also got it from the terminal
      continue;
    }
    if (end_seen_ == 0) end_seen_ = monotonic_ns();
    end_signal_ = signal;
    tell_ranks(kEndNowSignal);
  }
}

void Supervisor::tell_ranks(int signal) const {
  for (const Rank& rank : ranks_) {
    if (!rank.ended) ::kill(rank.pid, signal);
  }
}

void Supervisor::reap() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (rank.ended || ::waitpid(rank.pid, &rank.status, WNOHANG) != rank.pid) continue;
    rank.ended = true;
    read_signals();  // a signal to the process group has reached the launcher by now
    note_end(static_cast<int64_t>(i));
  }
}

void Supervisor::note_end(int64_t index) {
  if (end_signal_ != 0) return;
  const Rank& rank = ranks_[static_cast<size_t>(index)];
  const Control& control = job_.control();
  const RankState state = control.state(index);
  std::string how;
  if (WIFSIGNALED(rank.status) && !rank.forced) {
    const int signal = WTERMSIG(rank.status);
    how = cat("was killed by signal ", signal, " (", signal_name(signal), ")");
  } else if (WIFEXITED(rank.status) && state != RankState::Done && state != RankState::Failed) {
    how = cat("exited with code ", WEXITSTATUS(rank.status));
  }
  if (how.empty()) return;
  const std::string message =
      cat("rank ", index, " (pid ", rank.pid, ") ", how, " ", control.whereabouts(index));
  if (loss_.empty()) loss_ = message;
  name_cause(loss_);
  control.abort(-1, message, ExitCode::PeerLost);
}

void Supervisor::enforce() {
  constexpr double kEndNowSeconds = 1;
  const Control& control = job_.control();
  if (end_signal_ != 0) {
    if (static_cast<double>(monotonic_ns() - end_seen_) * 1e-9 > kEndNowSeconds) force_ranks();
    return;
  }
  // A rank that dies while aborting leaves the job half aborted; only the launcher can finish it.
  if (!control.aborted() && loss_.empty()) return;
  const int64_t now = monotonic_ns();
  if (abort_seen_ == 0) abort_seen_ = now;
  // A hung rank may have to be killed; report it without waiting for that.
  if (control.aborted() && control.abort_code() == ExitCode::Hang) {
    name_cause(control.abort_reason());
  }
  if (static_cast<double>(now - abort_seen_) * 1e-9 < options_.grace_seconds) return;
  force_ranks();
}

void Supervisor::force_ranks() {
  for (Rank& rank : ranks_) {
    if (rank.ended || rank.forced) continue;
    rank.forced = true;
    ::kill(rank.pid, SIGKILL);
  }
}

int Supervisor::verdict() {
  if (end_signal_ != 0) return static_cast<int>(stop_code(end_signal_));
  const Verdict verdict = verdict_of(job_.control(), loss_);
  if (!verdict.cause.empty()) return blame(verdict);
  for (const Rank& rank : ranks_) {
    if (WIFEXITED(rank.status) && WEXITSTATUS(rank.status) != 0) return WEXITSTATUS(rank.status);
  }
  return 0;
}

// Reports the cause once, as soon as it is known.
void Supervisor::name_cause(const std::string& message) {
  if (!cause_named_) report(message);
  cause_named_ = true;
}

// Reports the cause first, then its consequences in one line.
int Supervisor::blame(const Verdict& verdict) {
  name_cause(verdict.cause);
  std::vector<std::string> forced;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].forced) forced.push_back(cat(i));
  }
  const int64_t others = options_.ranks - verdict.involved;
  if (others > 0) {
    report(cat(others == 1 ? "the other rank" : cat("the other ", others, " ranks"), " stopped",
               forced.empty() ? ""
                              : cat("; killed after ", format_double(options_.grace_seconds),
                                    " s: ", join(forced, ", "))));
  }
  return static_cast<int>(verdict.code);
}

void Supervisor::report(const std::string& message) const {
  if (options_.report) return options_.report(message);
  std::fprintf(stderr, "weft: %s\n", message.c_str());
}

}  // namespace

int launch_ranks(const LaunchOptions& options, const RankMain& body) {
  CHECK(options.ranks >= 1, "ranks ", options.ranks);
  Supervisor supervisor(options, body);
  return supervisor.supervise();
}

}  // namespace weft

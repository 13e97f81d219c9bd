// How a rank waits for another, and how it finds out that the other will never come.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/comm/control.h"
#include "runtime/comm/futex.h"

namespace weft {
namespace {

constexpr int64_t kNapMilliseconds = 50;

bool has_arrived(const Cell& cell, uint32_t target) {
  // Numbers wrap around, so the difference decides.
  return static_cast<int32_t>(cell.arrived.load(std::memory_order_acquire) - target) >= 0;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The peer that a channel of this rank waits for in vain, or -1. A wait whose arrival has been made
// does not count: then the rank itself does not go on.
int64_t blocked_by(const Control& control, int64_t rank) {
  for (int64_t channel = 0; channel < kMaxChannels; ++channel) {
    const WaitRecord& wait = control.at(rank).waits[channel];
    const int64_t peer = wait.peer.load();
    if (peer < 0) continue;
    if (!has_arrived(control.cell(peer, {wait.axis.load(), channel}), wait.target.load())) {
      return peer;
    }
  }
  return -1;
}

// Follows who waits for whom to a rank that waits for nobody; -1 when they wait in a circle.
int64_t find_culprit(const Control& control, int64_t peer) {
  for (int64_t hops = 0; hops <= control.ranks(); ++hops) {
    const int64_t next = blocked_by(control, peer);
    if (next < 0) return peer;
    peer = next;
  }
  return -1;
}

std::string seconds_text(double seconds) {
  return cat(format_double(std::round(seconds * 10) / 10), " s");
}

// Processor time that a process has used; 0 when it is gone.
int64_t processor_ns(pid_t process) {
  clockid_t clock;
  timespec time{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Looks now and then at the rank that is waited for. A process that waits, is stopped or is locked
// up uses next to no processor time, whereas one that computes on a busy machine gets its share.
class Watch {
 public:
  // Nanoseconds since the rank last was seen alive, by its own marks or because it computed.
  int64_t silence(const Control& control, int64_t rank) {
    const RankRecord& record = control.at(rank);
    const int64_t now = monotonic_ns();
    const int64_t used = processor_ns(record.process.load());
    if (rank != rank_) {
      rank_ = rank;
      looked_ = now;
      used_ = used;
      computed_ = 0;
    } else if (now - looked_ >= kBetweenLooks) {
      if (used - used_ >= (now - looked_) / kComputingShare) computed_ = now;
      looked_ = now;
      used_ = used;
    }
    return now - std::max(computed_, record.sign_of_life.load());
  }

 private:
  static constexpr int64_t kBetweenLooks = 45'000'000;
  static constexpr int64_t kComputingShare = 20;  // a twentieth of the time between two looks

  int64_t rank_ = -1;
  int64_t looked_ = 0;
  int64_t used_ = 0;
  int64_t computed_ = 0;
};

void check_silence(const Control& control, int64_t rank, int64_t peer, int64_t since,
                   double timeout, Watch& watch) {
  const double waited = static_cast<double>(monotonic_ns() - since) * 1e-9;
  const int64_t culprit = find_culprit(control, peer);
  const double silent =
      culprit < 0 ? waited : static_cast<double>(watch.silence(control, culprit)) * 1e-9;
  if (waited < timeout) return;
  if (culprit == -1) {
    control.abort(rank,
                  cat("the ranks wait for each other: rank ", rank, " ", control.whereabouts(rank),
                      ", rank ", peer, " ", control.whereabouts(peer)),
                  ExitCode::Hang);
    return;
  }
  if (silent < timeout || culprit == rank) return;
  control.abort(
      rank,
      cat("rank ", culprit, " hangs: no sign of life for ", seconds_text(silent), " ",
          control.whereabouts(culprit), ", while rank ", rank, " waits ", control.whereabouts(rank),
          "; if the work takes that long, set comm.timeout_seconds higher"),
      ExitCode::Hang);
}

// Shows the others what this rank waits for, as long as it does.
class ShownWait {
 public:
  ShownWait(WaitRecord& record, int64_t peer, int64_t axis, uint32_t target) : record_(record) {
    record_.axis = static_cast<int32_t>(axis);
    record_.target = target;
    record_.peer = static_cast<int32_t>(peer);
  }
  ~ShownWait() { record_.peer = -1; }
  ShownWait(const ShownWait&) = delete;
  ShownWait& operator=(const ShownWait&) = delete;

 private:
  WaitRecord& record_;
};

}  // namespace

void await_arrival(const Control& control, int64_t rank, int64_t peer, const MeetingPlace& place,
                   uint32_t target, const WaitOptions& options) {
  Cell& cell = control.cell(peer, place);
  for (int i = 0; i <= options.spins; ++i) {
    if (has_arrived(cell, target)) return;
    relax();
  }
  const ShownWait shown(control.at(rank).waits[place.channel], peer, place.axis, target);
  const int64_t since = monotonic_ns();
  Watch watch;
  while (true) {
    const RankState state = control.state(peer);
    const uint32_t seen = cell.arrived.load();
    if (has_arrived(cell, target)) break;
    control.check_alive();
    if (state == RankState::Done || state == RankState::Failed) {
      control.abort(rank,
                    cat("rank ", peer, state == RankState::Done ? " ended" : " failed",
                        " while rank ", rank, " waits for it ", control.whereabouts(rank)),
                    ExitCode::PeerLost);
    } else if (options.launcher_alive && !options.launcher_alive()) {
      control.abort(rank, "the launcher is gone", ExitCode::PeerLost);
    } else {
      check_silence(control, rank, peer, since, options.timeout_seconds, watch);
    }
    if (control.aborted()) continue;
    cell.sleepers.fetch_add(1);
    if (!control.aborted()) futex_wait(cell.arrived, seen, kNapMilliseconds);
    cell.sleepers.fetch_sub(1);
  }
  control.at(rank).sign_of_life.store(monotonic_ns(), std::memory_order_relaxed);
}

}  // namespace weft

// How a rank waits for a peer, and how it detects that the peer will never arrive.
#include <algorithm>
#include <vector>

#include "runtime/comm/control.h"
#include "runtime/comm/futex.h"
#include "runtime/comm/watchdog.h"
#include "runtime/cpu/spin.h"

namespace weft {
namespace {

constexpr int64_t kNapMilliseconds = 50;

bool has_arrived(const Cell& cell, uint32_t target) {
  // Arrival numbers wrap around, so compare their difference.
  return static_cast<int32_t>(cell.arrived.load(std::memory_order_acquire) - target) >= 0;
}

// The peer that blocks this rank on some channel, or -1. A wait whose arrival has already happened
// does not count: the rank is then able to continue.
int64_t blocked_by(const Control& control, int64_t rank) {
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    const WaitRecord& wait = control.at(rank).waits[channel];
    const int64_t peer = wait.peer.load();
    if (peer < 0) continue;
    if (!has_arrived(control.cell(peer, {wait.axis.load(), channel}), wait.target.load())) {
      return peer;
    }
  }
  return -1;
}

// Follows the chain of waits to a rank that waits for nobody; -1 when the waits form a cycle.
int64_t find_culprit(const Control& control, int64_t peer) {
  for (int64_t hops = 0; hops <= control.ranks(); ++hops) {
    const int64_t next = blocked_by(control, peer);
    if (next < 0) return peer;
    peer = next;
  }
  return -1;
}

void check_heartbeat(const Control& control, int64_t rank, int64_t peer, int64_t since,
                     double timeout, HeartbeatAge& age) {
  const double waited = static_cast<double>(monotonic_ns() - since) * 1e-9;
  const int64_t culprit = find_culprit(control, peer);
  const double silent = culprit < 0 ? waited : static_cast<double>(age.of(control, culprit)) * 1e-9;
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
      cat("rank ", culprit, " hangs: no heartbeat for ", seconds_text(silent), " ",
          control.whereabouts(culprit), ", while rank ", rank, " waits ", control.whereabouts(rank),
          "; if the work takes that long, raise comm.timeout_seconds"),
      ExitCode::Hang);
}

// Shows the other ranks what this rank waits for while it waits.
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

void await_arrival(const Control& control, int64_t rank, int64_t peer, const BarrierId& place,
                   uint32_t target, const WaitOptions& options) {
  Cell& cell = control.cell(peer, place);
  for (int i = 0; i <= options.spins; ++i) {
    if (has_arrived(cell, target)) return;
    relax();
  }
  const ShownWait shown(control.at(rank).waits[place.channel], peer, place.axis, target);
  const int64_t since = monotonic_ns();
  HeartbeatAge age;
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
    } else if (const std::string loss = options.launcher_loss ? options.launcher_loss() : "";
               !loss.empty()) {
      control.abort(rank, loss, ExitCode::PeerLost);
    } else {
      check_heartbeat(control, rank, peer, since, options.timeout_seconds, age);
    }
    if (control.aborted()) continue;
    cell.sleepers.fetch_add(1);
    if (!control.aborted()) futex_wait(cell.arrived, seen, kNapMilliseconds);
    cell.sleepers.fetch_sub(1);
  }
  control.at(rank).sign_of_life.store(monotonic_ns(), std::memory_order_relaxed);
}

}  // namespace weft

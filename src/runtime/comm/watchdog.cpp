#include "runtime/comm/watchdog.h"

#include <time.h>

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

constexpr int64_t kBetweenLooks = 45'000'000;
constexpr int64_t kComputingShare = 20;  // a twentieth of the time between two looks
// A device's proxy threads use the processor even when nothing arrives, so a standstill of all
// ranks shows only in their heartbeats. It gets a longer timeout than a rank that is plainly gone.
constexpr double kStandstillFactor = 3;
constexpr double kSecond = 1e-9;

// Processor time used by a process; 0 when it is gone.
int64_t processor_ns(pid_t process) {
  clockid_t clock;
  timespec time{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

bool has_left(RankState state) {
  return state == RankState::Done || state == RankState::Failed;
}

}  // namespace

std::string seconds_text(double seconds) {
  return cat(format_double(std::round(seconds * 10) / 10), " s");
}

int64_t HeartbeatAge::of(const Control& control, int64_t rank) {
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

void DeviceWait::look(const Control& control, int64_t rank, const DeviceLook& seen,
                      const WaitOptions& options) {
  if (seen.got_further) got_further_ = monotonic_ns();
  control.check_alive();
  if (const std::string loss = options.launcher_loss ? options.launcher_loss() : "";
      !loss.empty()) {
    control.abort(rank, loss, ExitCode::PeerLost);
  } else if (!seen.inside) {
    ages_.clear();
    control.at(rank).sign_of_life.store(monotonic_ns(), std::memory_order_relaxed);
  } else {
    find_cause(control, rank, std::max(got_further_, seen.waiting_since), options);
  }
  control.check_alive();
}

void DeviceWait::find_cause(const Control& control, int64_t rank, int64_t blocked_since,
                            const WaitOptions& options) {
  const int64_t now = monotonic_ns();
  const double waited = static_cast<double>(now - blocked_since) * kSecond;
  bool standstill = waited >= kStandstillFactor * options.timeout_seconds;
  int64_t other = rank;
  for (int64_t peer = 0; peer < control.ranks(); ++peer) {
    if (peer == rank) continue;
    other = peer;
    const double silent = static_cast<double>(ages_[peer].of(control, peer)) * kSecond;
    const double idle = static_cast<double>(now - control.at(peer).sign_of_life.load()) * kSecond;
    standstill &= idle >= options.timeout_seconds;
    if (waited < options.timeout_seconds) continue;
    if (has_left(control.state(peer))) {
      control.abort(rank,
                    cat("rank ", peer, " ended while rank ", rank, " waits for it ",
                        control.whereabouts(rank)),
                    ExitCode::PeerLost);
    } else if (silent >= options.timeout_seconds) {
      control.abort(rank,
                    cat("rank ", peer, " hangs: no heartbeat for ", seconds_text(silent), " ",
                        control.whereabouts(peer), ", while rank ", rank, " waits ",
                        control.whereabouts(rank),
                        "; if the work takes that long, raise comm.timeout_seconds"),
                    ExitCode::Hang);
    }
  }
  if (!standstill) return;
  control.abort(rank,
                cat("no rank makes progress: rank ", rank, " ", control.whereabouts(rank),
                    ", rank ", other, " ", control.whereabouts(other)),
                ExitCode::Hang);
}

}  // namespace weft

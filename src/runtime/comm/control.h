// Control state shared by all ranks of a job on one host, separate from their data: barriers, what
// each rank is doing, and why the job ended. It is plain memory without pointers, so threads can
// use it and processes can map it. It stays usable when a peer is killed at any moment: nobody
// holds a lock, every wait ends when the job is aborted, and a silent peer is detected.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "runtime/comm/channels.h"

namespace weft {

inline constexpr int64_t kMaxAxes = 6;
inline constexpr int64_t kInlineBytes = 512;
inline constexpr int64_t kMailBytes = 4096;
// A barrier belongs to a set of axes, one bit each: a plain axis has one bit, a joint axis several.
// All ranks thus agree on the barrier of a joint axis without having made it together.
inline constexpr int64_t kAxisSets = int64_t{1} << kMaxAxes;
inline constexpr int64_t kWorldAxis = kAxisSets;  // the barrier of all ranks

// One rank's side of a barrier, written by that rank only. Tag and payload of an arrival lie in the
// slot of its parity, which is safe because no rank can be two arrivals ahead of a reader.
struct Cell {
  alignas(64) std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> sleepers;
  uint64_t tags[2];
  alignas(64) char payloads[2][kInlineBytes];
};

// The peer and arrival that a channel waits for; peer -1: none.
struct WaitRecord {
  std::atomic<int32_t> peer;
  std::atomic<int32_t> axis;
  std::atomic<uint32_t> target;
};

// What was last started on a channel; double-buffered, so that readers always see a complete text.
struct ProgressRecord {
  static constexpr int64_t kWords = 16;
  std::atomic<uint32_t> current;
  std::atomic<bool> busy;
  std::atomic<uint64_t> texts[2][kWords];
};

enum class RankState : uint32_t { Absent, Running, Done, Failed };

struct RankRecord {
  std::atomic<uint32_t> state;
  std::atomic<int32_t> inside;  // collectives this rank is in
  std::atomic<int64_t> step;
  std::atomic<int32_t> process;       // process id
  std::atomic<int64_t> sign_of_life;  // last heartbeat, in nanoseconds of the monotonic clock
  WaitRecord waits[kChannels];
  ProgressRecord progress[kChannels];
  Cell cells[kAxisSets + 1][kChannels];
  char mail[2][kMailBytes];
  int32_t exit_code;
  char error[1024];  // valid in state Failed
};

struct JobRecord {
  int64_t ranks;
  std::atomic<uint32_t> abort_state;  // 0 running, 1 being written, 2 aborted
  std::atomic<int32_t> abort_rank;    // the rank that aborted; -1: the launcher
  int32_t abort_code;
  char abort_reason[1024];
};

// Identifies a barrier: the set of axes (or all ranks) and the channel.
struct BarrierId {
  int64_t axis = kWorldAxis;
  int64_t channel = 0;
};

// A view of the shared memory; copies refer to the same job.
class Control {
 public:
  // Bytes a job needs; zero-filled memory of that size becomes a fresh job by calling `start`.
  static int64_t bytes(int64_t ranks);
  static Control start(void* memory, int64_t ranks);
  // A job that another process has started.
  static Control view(void* memory);

  int64_t ranks() const { return job_->ranks; }
  RankRecord& at(int64_t rank) const { return ranks_[rank]; }
  Cell& cell(int64_t rank, const BarrierId& barrier) const {
    return at(rank).cells[barrier.axis][barrier.channel];
  }

  // Announces an arrival, wakes its sleepers and returns its number.
  uint32_t arrive(int64_t rank, const BarrierId& barrier, uint64_t tag,
                  std::span<const char> payload = {}) const;

  // Aborts the job unless it is already aborted. `code` is the exit code of the other ranks.
  void abort(int64_t rank, std::string_view reason, ExitCode code) const;
  bool aborted() const { return job_->abort_state.load() == 2; }
  // Valid once aborted.
  int64_t abort_rank() const { return job_->abort_rank.load(); }
  ExitCode abort_code() const { return static_cast<ExitCode>(job_->abort_code); }
  std::string abort_reason() const { return job_->abort_reason; }
  // Throws DeviceError when the job is aborted.
  void check_alive() const;

  void set_state(int64_t rank, RankState state) const;
  RankState state(int64_t rank) const { return static_cast<RankState>(at(rank).state.load()); }
  // Stores the rank's error for the launcher.
  void set_failed(int64_t rank, std::string_view error, ExitCode code) const;

  void report_progress(int64_t rank, int64_t channel, std::string_view where) const;
  // "at training step 12, in forward step 3 matmul (layers.0 fwd)".
  std::string whereabouts(int64_t rank) const;

 private:
  JobRecord* job_ = nullptr;
  RankRecord* ranks_ = nullptr;
};

// How a rank waits.
struct WaitOptions {
  double timeout_seconds = 10;
  int spins = 0;  // before sleeping; 0 when ranks share cores
  // Checked while sleeping: why the rank cannot go on without its launcher; "": nothing is lost.
  std::function<std::string()> launcher_loss;
};

// Waits until `peer` has reached arrival `target`. Throws DeviceError when the job is aborted, and
// aborts it when the peer has exited, the launcher is gone, or a rank is hung: it neither sends
// heartbeats nor uses its processor. A single kernel may therefore take as long as it needs.
void await_arrival(const Control& control, int64_t rank, int64_t peer, const BarrierId& place,
                   uint32_t target, const WaitOptions& options);

// Nanoseconds of the monotonic clock, which all processes of a host share.
int64_t monotonic_ns();

}  // namespace weft

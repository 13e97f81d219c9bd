// kill -9 of each rank and of the launcher during collectives: never a hang, never a process left
// behind; tests/cli/kill_test.cpp does the same to a training job. The test process adopts orphans,
// so it sees every one of them.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "ranks/ranks.h"
#include "runtime/comm/launcher.h"
#include "runtime/cpu/device.h"

namespace weft {
namespace {

constexpr int64_t kRanks = 4;

// What the processes report to the test.
struct Board {
  std::atomic<pid_t> pids[kRanks];
  std::atomic<int> messages;
  std::atomic<int64_t> named_ns;
};

Board* make_board() {
  void* memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return static_cast<Board*>(memory);
}

// Collectives of all kinds and sizes, in an endless loop.
int loop(int64_t rank, ShmJob& job, Board& board) {
  const Mesh mesh = make_mesh({{"replicate", 2}, {"shard", 2}});
  const auto comm = job.connect({mesh, rank});
  HostDevice device(1);
  constexpr int64_t kElements = 64 * 1024;
  const auto release = [&](float* block) { comm->release(block, device); };
  const std::unique_ptr<float, decltype(release)> arena(
      static_cast<float*>(comm->allocate(kElements * 3 * 4, device)), release);
  float* memory = arena.get();
  std::memset(memory, 0, kElements * 3 * 4);
  const Tensor full{memory, DType::F32, {kElements}};
  const Tensor shard{memory + kElements, DType::F32, {kElements / 2}};
  const Tensor small{memory + 2 * kElements, DType::F32, {3}};
  board.pids[rank] = ::getpid();
  for (int64_t step = 0;; ++step) {
    comm->start_step(step);
    comm->report_progress(0, "step step 0 all_gather (fwd)");
    comm->all_gather({"shard", 0}, shard, {&full, 1});
    comm->reduce_scatter({"shard", 0}, {&full, 1}, shard);
    comm->all_reduce({"replicate", 0}, {&shard, 1});
    comm->all_reduce({"shard", 0}, {&small, 1});
  }
}

pid_t start_launcher(Board& board) {
  const pid_t launcher = ::fork();
  if (launcher != 0) return launcher;
  LaunchOptions options;
  options.ranks = kRanks;
  options.report = [&](const std::string& message) {
    if (message.find("was killed by signal 9") == std::string::npos) return;
    board.messages.fetch_add(1);
    board.named_ns = monotonic_ns();
  };
  ::_exit(launch_ranks(options, [&](int64_t rank, ShmJob& job) { return loop(rank, job, board); }));
}

bool wait_until(const std::function<bool()>& condition, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  while (!condition()) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Reaps processes that have ended; true when no child or orphan is left. Stores the launcher's
// status.
bool all_gone(pid_t launcher, int& launcher_status) {
  while (true) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid == launcher) launcher_status = status;
    if (pid < 0) return errno == ECHILD;
    if (pid == 0) return false;
  }
}

TEST(Kill, NeverHangsAndLeavesNothingBehind) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  std::mt19937 random(20240611);
  for (int round = 0; round < 30; ++round) {
    const int victim = round % 5;  // each rank, then the launcher
    SCOPED_TRACE(cat("round ", round, ", victim ", victim));
    Board* board = make_board();
    const pid_t launcher = start_launcher(*board);
    // The launcher may be hit while it is still starting the ranks.
    const auto delay = std::chrono::microseconds(random() % 60000);
    if (victim < 4) {
      ASSERT_TRUE(wait_until([&] { return board->pids[victim].load() != 0; }, 10));
    }
    std::this_thread::sleep_for(delay);
    const pid_t pid = victim == 4 ? launcher : board->pids[victim].load();
    const int64_t start = monotonic_ns();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    int status = 0;
    ASSERT_TRUE(wait_until([&] { return all_gone(launcher, status); }, 5)) << "processes left";
    const auto seconds_to = [&](int64_t ns) { return static_cast<double>(ns - start) * 1e-9; };
    const double took = seconds_to(monotonic_ns());
    if (victim < 4) {
      EXPECT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 76);
      EXPECT_EQ(board->messages.load(), 1) << "the killed rank was not named";
      EXPECT_LT(seconds_to(board->named_ns.load()), 1.0);
      EXPECT_LT(took, 2.0) << "ranks that wait stop at once";
    }
    ::munmap(board, sizeof(Board));
  }
}

}  // namespace
}  // namespace weft

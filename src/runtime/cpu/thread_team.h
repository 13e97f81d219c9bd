// A fixed set of threads that share the tiles of one task at a time. Threads take tiles in any
// order, so a task must give the same bits for every order: tile boundaries depend on shapes alone
// and no two tiles write to the same location. Waiting threads spin briefly, then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace weft {

class ThreadTeam {
 public:
  // Scratch memory that each thread owns, passed to tasks that ask for it; of fixed size, like a
  // stack.
  static constexpr int64_t kScratchFloats = 256 * 1024;

  // `threads` counts the thread that calls run; at least 1.
  explicit ThreadTeam(int64_t threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int64_t threads() const { return static_cast<int64_t>(workers_.size()) + 1; }

  // Calls fn(tile), or fn(tile, float* scratch), once for each tile in [0, tiles) and returns when
  // all are done. The caller takes part. The first exception ends the task early and is rethrown
  // here. Throws InternalError when the team is already running a task.
  template <class Fn>
  void run(int64_t tiles, Fn&& fn) {
    using Body = std::remove_reference_t<Fn>;
    run_task({tiles, const_cast<void*>(static_cast<const void*>(&fn)),
              [](void* body, int64_t tile, float* scratch) {
                if constexpr (std::is_invocable_v<Body&, int64_t, float*>) {
                  (*static_cast<Body*>(body))(tile, scratch);
                } else {
                  (*static_cast<Body*>(body))(tile);
                }
              }});
  }

 private:
  struct Task {
    int64_t tiles = 0;
    void* body = nullptr;
    void (*call)(void* body, int64_t tile, float* scratch) = nullptr;
  };
  struct ScratchDeleter {
    void operator()(float* memory) const;
  };
  using Scratch = std::unique_ptr<float, ScratchDeleter>;

  void run_task(const Task& task);
  void take_tiles(float* scratch);
  void work(float* scratch);

  Task task_;
  std::atomic<int64_t> next_tile_{0};
  // One word for the life of a task: generation << 16 | closed << 15 | threads inside. A thread may
  // enter while the task is open; the caller closes it when no tile is left and waits for zero.
  std::atomic<uint32_t> state_;
  std::atomic<bool> running_{false};
  std::atomic<bool> ending_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::vector<Scratch> scratch_;
  std::vector<std::thread> workers_;
};

}  // namespace weft

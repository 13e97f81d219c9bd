// Ranks as threads of one process: for tests, and for debugging a job in one debugger.
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"

namespace weft {

// State shared by the ranks of one process. It outlives their communicators.
class ThreadsJob {
 public:
  explicit ThreadsJob(int64_t ranks);
  ~ThreadsJob();
  ThreadsJob(const ThreadsJob&) = delete;
  ThreadsJob& operator=(const ThreadsJob&) = delete;

  // Creates the communicator of one rank; each rank calls it once, on its own thread.
  std::unique_ptr<Communicator> connect(RankInfo info, const CommOptions& options = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft

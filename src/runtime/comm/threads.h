// Ranks as threads of one process: for tests, and for a look at a job under one debugger.
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"

namespace weft {

// What the ranks of one process share. It outlives their communicators.
class ThreadsJob {
 public:
  explicit ThreadsJob(int64_t ranks);
  ~ThreadsJob();
  ThreadsJob(const ThreadsJob&) = delete;
  ThreadsJob& operator=(const ThreadsJob&) = delete;

  // The communicator of one rank; each rank joins once, on its own thread.
  std::unique_ptr<Communicator> join(RankInfo info, const CommOptions& options = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft

// The ranks of one host that another launcher has started, as mpirun does. Rank 0 starts the job
// and listens on a local socket; the others connect and receive the descriptors of its memory. The
// connection stays open as a sign of life, so that the death of a rank is noticed at once.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/comm/verdict.h"

namespace weft {

struct JoinOptions {
  std::string job;  // the same for all ranks of a job, and no other job's on this host
  int64_t rank = 0;
  int64_t ranks = 1;
  double start_seconds = 60;  // until every rank must be there
  double grace_seconds = 4;   // from an abort until rank 0 no longer waits for the others
};

// Meets the other ranks, runs body(rank, job) and returns the exit code, as launch_ranks does; rank
// 0 waits for the others and prints the cause of a failure. Throws DeviceError when ranks are
// missing. Only processes of the same user are let in.
int join_ranks(const JoinOptions& options, const RankMain& body);

}  // namespace weft

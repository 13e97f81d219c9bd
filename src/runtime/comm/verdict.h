// How a job has ended, as its control block tells it: the same for ranks that this program started
// and for ranks that another launcher did.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "runtime/comm/shm.h"

namespace weft {

// What a rank does; the value is its exit code.
using RankMain = std::function<int(int64_t rank, ShmJob& job)>;

// Runs the body and stores how it ended, and its error if it failed, in the control block.
int run_rank(int64_t rank, ShmJob& job, const RankMain& body);

struct Verdict {
  std::string cause;     // empty: no rank failed
  int64_t involved = 0;  // ranks that failed this way
  ExitCode code = ExitCode::Done;
};

// The cause of a failed job: a lost rank (`loss` says how, "" if none was), else the earliest error
// that is no consequence of another one, else the reason of an abort.
Verdict verdict_of(const Control& control, const std::string& loss);

}  // namespace weft

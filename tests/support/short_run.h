// A few training steps in this process, for tests that compare runs bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "config/config.h"
#include "runtime/comm/communicator.h"

namespace weft {

// The exact results of a run.
struct ShortRun {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::vector<float> params;  // all parameters, one after the other
  int64_t arena_bytes = 0;

  bool operator==(const ShortRun& other) const {
    return losses == other.losses && grad_norms == other.grad_norms && params == other.params;
  }
};

// A config and its plan for some number of ranks; a run may be repeated, or skipped if its plan is
// known.
struct PreparedRun {
  Config config;
  int64_t ranks = 1;
  Compiled compiled;
};

PreparedRun prepare_run(int64_t ranks, const std::vector<std::string>& overrides);

// Runs `steps` optimizer steps on synthetic tokens with these config overrides.
ShortRun short_run(const std::vector<std::string>& overrides, int64_t steps = 3);

// The same on ranks that are threads of this process. All of them must end with the same losses and
// parameters; rank 0's are returned.
ShortRun short_run_on_ranks(int64_t ranks, const std::vector<std::string>& overrides,
                            int64_t steps = 3);
ShortRun short_run_on_ranks(const PreparedRun& prepared, int64_t steps = 3);

// Calls `work` on every rank, a thread of this process; throws the first rank's error.
void on_ranks(const PreparedRun& prepared, const std::function<void(Communicator&)>& work);

}  // namespace weft

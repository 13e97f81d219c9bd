// Runs a reference trace: a folder with a Hugging Face model, one fixed batch, and the results of
// another framework for ten optimizer steps on it (losses, gradient norms, gradients, final
// weights). Works for any folder in this format; nothing here depends on a specific model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "runtime/comm/single_rank.h"
#include "tools/trace.h"

namespace weft {

// One compared quantity: its worst error and the tolerance.
struct Comparison {
  std::string quantity;  // "losses", "gradient norms", "gradients", "final weights"
  double worst = 0;
  double tolerance = 0;
  std::string where;  // step or tensor of the worst error

  bool passed() const { return worst <= tolerance; }
};

// How far results may differ from the trace.
struct VerifyTolerances {
  double loss = 2e-5;      // relative, per step; also for gradient norms
  double gradient = 1e-4;  // of the tensor's norm, taken as at least 1e-6 of the global norm
  double weight = 1e-3;    // of the distance the tensor moved in ten steps
};

// A trace and the config of its run.
struct TraceRun {
  std::string folder;
  Trace trace;
  Config config;
};

// Reads the folder for a run on `ranks` ranks, each with an equal part of the batch, using the
// device, precision, parallelism and compile options of `config`. Throws UserError(InputFile) for a
// folder that is not a trace, and UserError(Config) when the ranks do not divide the batch or the
// user set a key that the trace fixes or that has no effect.
TraceRun open_trace(const std::string& folder, const Config& config, int64_t ranks = 1);

// Trains as the trace says and compares. With several ranks, each calls it with its own `comm` and
// gets the same comparisons.
std::vector<Comparison> verify_trace(const TraceRun& run, const VerifyTolerances& tolerances,
                                     Communicator& comm = single_rank());

}  // namespace weft

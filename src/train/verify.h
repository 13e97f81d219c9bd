// Runs a reference trace: a folder with a Hugging Face model, one fixed batch, and what another
// framework got for ten optimizer steps on it (losses, gradient norms, gradients, final weights).
// Any folder of that form will do; nothing here knows a model by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "runtime/comm/communicator.h"
#include "train/trace.h"

namespace weft {

// One compared quantity: its worst error and what is allowed.
struct Comparison {
  std::string quantity;  // "losses", "gradient norms", "gradients", "final weights"
  double worst = 0;
  double tolerance = 0;
  std::string where;  // step or tensor of the worst error

  bool passed() const { return worst <= tolerance; }
};

// How far results may be from the trace.
struct VerifyTolerances {
  double loss = 2e-5;      // relative, per step; gradient norms likewise
  double gradient = 1e-4;  // of the tensor's norm, which counts as at least 1e-6 of the global one
  double weight = 1e-3;    // of how far the tensor moved in the ten steps
};

// A trace, and the run that it asks for.
struct TraceRun {
  std::string folder;
  Trace trace;
  Config config;
};

// Reads the folder for a run on so many ranks, each of which gets an equal part of the batch, with
// the device, precision, parallelism and compile options of `config`. Throws UserError(InputFile)
// for a folder that is no trace, and UserError(Config) when the ranks do not divide the batch or
// the user set a key that the trace decides or that has no effect here.
TraceRun open_trace(const std::string& folder, const Config& config, int64_t ranks = 1);

// Trains as the trace says and compares. With several ranks each calls it with its own `comm` and
// gets the same comparisons.
std::vector<Comparison> verify_trace(const TraceRun& run, const VerifyTolerances& tolerances,
                                     Communicator* comm = nullptr);

}  // namespace weft

// Runs two plans on the same data and finds the first value that differs. Values are matched by
// name and put together from the shards and partial sums of the ranks, so any two meshes can be
// compared, and any two settings of the compiler.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compile/compile.h"
#include "config/config.h"

namespace weft {

// A config and its plan, compiled with CompileOptions::keep_values.
struct ComparedRun {
  Config config;
  Compiled compiled;
};

struct CompareOptions {
  int64_t steps = 1;
  // Allowed difference, relative to the largest element of a value; unset: by the precision of the
  // runs.
  std::optional<double> tolerance;
};

struct ValueDifference {
  std::string value;    // "%l0.attention.mix", "parameter norm.weight", ...
  std::string where;    // "layers.0.attention fwd"
  int64_t step = 0;     // of the training, from 0
  std::string element;  // "[1,3,17]"
  double one = 0, two = 0;
  std::string ranks;  // "ranks 0 and 2 of the second run" if replicas differ; else empty
};

struct PlanComparison {
  int64_t values = 0;                    // that both runs have
  int64_t identical = 0;                 // of them, bit for bit
  std::optional<ValueDifference> first;  // in the order of the first run
};

// Ranks are threads of this process, so both runs need a backend of the host. Holds all values of
// the first run in memory. Throws UserError if the runs do not train the same model on the same
// data.
PlanComparison compare_plans(const ComparedRun& one, const ComparedRun& two,
                             const CompareOptions& options);

// One or two lines for people.
std::string to_string(const PlanComparison& comparison);

}  // namespace weft

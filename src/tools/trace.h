// A reference trace as files: trace.json, config.json, model, grads and final safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model.h"

namespace weft {

struct TraceOptimizer {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  double clip_norm = 0;
};

struct Trace {
  ModelSpec spec;
  int64_t batch = 0;
  int64_t seq_len = 0;
  std::vector<int32_t> tokens;   // batch x seq_len
  std::vector<int32_t> targets;  // batch x seq_len
  std::vector<double> losses;
  std::vector<double> grad_norms;
  TraceOptimizer optimizer;
};

// Reads trace.json and config.json; throws UserError(InputFile) naming file and field.
Trace read_trace(const std::string& folder);

}  // namespace weft

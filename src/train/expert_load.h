// How evenly the experts of a model were used in a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// Tokens per expert of one step, layer by layer.
struct ExpertLoad {
  std::vector<std::vector<int64_t>> tokens;
  int64_t lost = 0;       // rows beyond parallelism.expert_capacity_factor
  bool replayed = false;  // because of them, so that none was lost

  // The largest load of an expert, relative to the mean of its layer.
  double largest() const;
  // Experts without a token.
  int64_t idle() const;
  // Of the loads, averaged over the layers; 1: all are equal, 0: one expert has all tokens.
  double entropy() const;
};

// {"load":1.5,"idle":0,"entropy":0.97,"lost":0,"replayed":false,"tokens":[[3,5],...]}
std::string to_json(const ExpertLoad& load);

}  // namespace weft

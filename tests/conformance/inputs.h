// Inputs for the generated tests: random numbers by dtype, restricted to valid values where the
// operand's name implies a restriction.
#pragma once

#include <cstdint>
#include <vector>

#include "support/call_runner.h"

namespace weft {

// One tensor per operand. Statistics that an op X_grad takes (lse, rstd, y) are those that X
// computes from the other operands. Rounds have different values and alternate between special
// cases: first or later micro-batch, finite or infinite norm, update or no update.
std::vector<HostTensor> make_inputs(const Call& call, uint64_t round);

// A standard normal tensor.
HostTensor random_tensor(const TensorType& type, uint64_t seed);

}  // namespace weft

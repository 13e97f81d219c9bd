// The ops that a fused op replaces, from the `parts` of its definition:
//
//   added = matmul(a, b; out="f32"); sum = add_in_place(acc, added)
//
// Names refer to the operands and results of the fused op; any other name is a temporary.
// Attributes of the same name are passed on. Shapes, cost and the fallback kernels of a fused op
// are derived from this.
#pragma once

#include <vector>

#include "graph/op.h"

namespace weft {

// What an operand or result of a part refers to.
struct PartPlace {
  enum class Kind { Operand, Result, Temporary };
  Kind kind = Kind::Operand;
  size_t index = 0;
};

// One op inside a fused op.
struct Part {
  Call call;
  std::vector<PartPlace> operands;
  std::vector<PartPlace> results;
};

// The parts in order, without those that need an absent optional operand.
std::vector<Part> parts_of(const Call& call);

// The `infer` and `cost` of a fused op.
std::vector<TensorType> infer_parts(const Call& call);
Cost cost_parts(const Call& call);

}  // namespace weft

// The ops that a joined op stands for, from its definition's `parts`:
//
//   sum = add(x, r); y, mean, rstd = layer_norm(sum, w, b)
//
// Names are those of the joined op's operands and results; any other is a temporary. Attributes of
// the same name are handed on. Shapes, cost and the plain kernels of a joined op follow from this.
#pragma once

#include <vector>

#include "graph/op.h"

namespace weft {

// Where an operand or result of a part lies.
struct PartPlace {
  enum class Kind { Operand, Result, Temporary };
  Kind kind = Kind::Operand;
  size_t index = 0;
};

// One op inside a joined one.
struct Part {
  Call call;
  std::vector<PartPlace> operands;
  std::vector<PartPlace> results;
};

// The parts in order, without those that need an optional operand that is not there.
std::vector<Part> parts_of(const Call& call);

// The `infer` and `cost` of a joined op.
std::vector<TensorType> infer_parts(const Call& call);
Cost cost_parts(const Call& call);

}  // namespace weft

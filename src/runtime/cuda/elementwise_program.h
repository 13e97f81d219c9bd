// A chain of elementwise ops as a small plain program that is passed to the GPU by value: a single
// op is a program of one step, a fused node is one step per statement of its body. Both run through
// the same interpreter, so that they round alike.
#pragma once

#include <cstdint>
#include <string>

#include "graph/op.h"

namespace weft::cuda {

enum class ElementwiseOp : int { Add, Cast, Gelu, GeluGrad, Dropout };

struct ElementwiseStep {
  ElementwiseOp op = ElementwiseOp::Add;
  DType result = DType::F32;
  // Values in order: the operands, then the results of the steps. `right` of a dropout is the
  // operand with the random state.
  int left = 0;
  int right = 0;
  float rate = 0;
  float scale = 1;
  uint64_t stream = 0;
};

struct ElementwiseProgram {
  static constexpr int kMaxOperands = 24;
  static constexpr int kMaxSteps = 48;

  int operands = 0;
  int steps = 0;
  ElementwiseStep step[kMaxSteps];
};

// The program of an elementwise call, single or fused; throws UserError when the body does not
// parse or does not fit.
ElementwiseProgram elementwise_program(const Call& call);

}  // namespace weft::cuda

// A chain of elementwise ops as a small program that is passed to the GPU by value. A single op is
// a program of one step; a fused node has one step per statement of its body. Both run through the
// same interpreter, so they round alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "graph/op.h"
#include "runtime/cuda/random.h"

namespace weft::cuda {

enum class ElementwiseOp : int { Add, Cast, Gelu, GeluGrad, Dropout };

struct ElementwiseStep {
  ElementwiseOp op = ElementwiseOp::Add;
  DType result = DType::F32;
  // Indices of values: the operands first, then the results of the steps. `right` of a dropout is
  // the operand with the random state.
  int left = 0;
  int right = 0;
  DropRule drop;
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

// The operands of a program that adds a tensor, after dropout, to another.
struct DropoutAdd {
  size_t dropped, added, rng;
  DropRule rule;
};

// nullopt for any other program.
std::optional<DropoutAdd> dropout_add(const ElementwiseProgram& program);

}  // namespace weft::cuda

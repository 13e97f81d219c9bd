// Parses and prints the body of a fused op: statements separated by "; ", each an elementwise op
// whose arguments are operands ($0) or earlier statements (t0):
//
//   t0:f32 = dropout($1, $2; rate=0.1, stream=7); t1:f32 = add($0, t0)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace weft {

// An operand of the fused op, or the result of an earlier statement.
struct FusedArg {
  bool is_operand = true;
  size_t index = 0;
  bool operator==(const FusedArg&) const = default;
};

// One elementwise op; its result is rounded to `dtype`.
struct FusedStatement {
  std::string name;
  DType dtype = DType::F32;
  const OpDef* op = nullptr;
  std::vector<FusedArg> args;
  Attrs attrs;
};

using FusedBody = std::vector<FusedStatement>;

// Throws UserError "fused: ..." for text that is not a body.
FusedBody parse_fused_body(std::string_view text);

// The canonical text: parse_fused_body reads it back.
std::string print_fused_body(const FusedBody& body);

// The call of one statement, given the types of the operands and of the statements before it.
Call fused_call(const FusedStatement& statement, const std::vector<TensorType>& operands,
                const std::vector<TensorType>& earlier);

// The type of every statement; throws if the body does not fit the operands of `call`.
std::vector<TensorType> fused_types(const Call& call, const FusedBody& body);

// FLOPs per element of the result.
double fused_flops(const Call& call, const FusedBody& body);

}  // namespace weft

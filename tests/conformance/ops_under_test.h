// Names for generated tests, and the ops they run over.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/call_text.h"
#include "graph/samples.h"

namespace weft {

// Every op that one rank computes: all but sources and collectives.
inline std::vector<const OpDef*> computed_ops() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : all_ops()) {
    if (!op->traits.source && !op->traits.collective) ops.push_back(op);
  }
  return ops;
}

// "matmul(f32[3,5], f32[7,5]; tb=true)", to say which sample failed.
inline std::string describe(const Call& call) {
  std::vector<std::string> operands;
  for (const TensorType& type : call.operands) operands.push_back(to_string(type));
  return cat(call.op->name(), "(", join(operands, ", "), print_call_attrs(*call.op, call.attrs),
             ")");
}

}  // namespace weft

// Picks a row of the kernel table for one call, or reports why no row supports it.
#include "plan/kernel.h"

#include <algorithm>

#include "base/error.h"
#include "graph/ops/shapes.h"

namespace weft {

bool may_share_memory(const Call& call, size_t operand) {
  if (!call.op->traits.elementwise && !call.op->traits.in_place) return false;
  const TensorType& from = call.operands.at(operand);
  const TensorType& to = call.results.at(0);
  // An operand with the name of the result is the only one that this updates.
  const Signature& signature = call.op->parsed();
  const auto is_updated = [&](const OperandSpec& spec) {
    return spec.name == signature.results.at(0).name;
  };
  const auto updated =
      std::find_if(signature.operands.begin(), signature.operands.end(), is_updated);
  if (updated != signature.operands.end() && operand_name(call, operand) != updated->name) {
    return false;
  }
  // Equal shapes: an operand that is not read element by element, such as the key of the random
  // numbers, must not be overwritten.
  return is_floating(from.dtype) && from.shape == to.shape &&
         dtype_bytes(from.dtype) == dtype_bytes(to.dtype);
}

const Kernel& choose_kernel(std::span<const Kernel> kernels, const Call& call,
                            std::string_view backend, std::string_view value_name) {
  const std::string_view op = call.op->name();
  std::vector<std::string> refusals;
  for (const Kernel& kernel : kernels) {
    if (kernel.op != op) continue;
    const Decision decision = kernel.supports ? kernel.supports(call) : Decision::yes();
    if (decision.allowed) return kernel;
    refusals.push_back(cat(kernel.name, ": ", decision.why));
  }
  if (refusals.empty()) refusals.push_back("the backend has none for this op");
  throw UserError(ExitCode::Config, cat("no ", backend, " kernel for ", op, " %", value_name, ": ",
                                        join(refusals, "; ")));
}

}  // namespace weft

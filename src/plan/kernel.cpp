// Picks a row of the kernel table for one call, or says why each row would not do.
#include "plan/kernel.h"

#include "base/error.h"

namespace weft {

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

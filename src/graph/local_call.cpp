#include "graph/local_call.h"

namespace weft {

Call local_call(const Call& call, const Mesh& mesh) {
  Call local = call;
  for (auto* types : {&local.operands, &local.results}) {
    for (TensorType& type : *types) {
      type.shape = local_shape(type, mesh);
      type.placement.clear();
    }
  }
  if (call.op->localize != nullptr) call.op->localize(call, local);
  return local;
}

}  // namespace weft

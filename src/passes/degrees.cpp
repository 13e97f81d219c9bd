#include "passes/degrees.h"

#include "graph/names.h"

namespace weft {

Degrees degrees_of(const Mesh& mesh) {
  Degrees degrees;
  for (const MeshAxis& axis : mesh.all_axes()) {
    if (axis.name == names::kReplicateAxis) degrees.dp_replicate = axis.size;
    if (axis.name == names::kShardAxis) degrees.dp_shard = axis.size;
    if (axis.name == names::kContextAxis) degrees.cp = axis.size;
    if (axis.name == names::kTensorAxis) degrees.tp = axis.size;
    if (axis.name == names::kExpertAxis) degrees.ep = axis.size;
  }
  return degrees;
}

}  // namespace weft

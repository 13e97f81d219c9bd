#include "graph/micro_nodes.h"

#include <algorithm>
#include <unordered_set>

namespace weft {

std::vector<Node*> micro_nodes(const Graph& graph, std::span<Node* const> order) {
  std::unordered_set<const Node*> needed;
  for (const Graph::Output& output : graph.outputs()) needed.insert(output.value->def);
  std::vector<Node*> kept;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    Node* node = *it;
    if (node->phase == Phase::Optimizer && !node->op->traits.source) continue;
    if (!needed.contains(node) && !node->op->traits.effect) continue;
    for (const Value* operand : node->operands) needed.insert(operand->def);
    kept.push_back(node);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace weft

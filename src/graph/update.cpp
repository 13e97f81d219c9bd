#include "graph/update.h"

#include <algorithm>

#include "base/error.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"

namespace weft {

Node* update_of(const Value& stored) {
  for (Node* user : stored.users) {
    if (user->op->traits.update && overwriting(*user, stored) != nullptr) return user;
  }
  return nullptr;
}

Value* state_of(const Node& update, StateRole role) {
  const auto found = std::find_if(update.operands.begin(), update.operands.end(),
                                  [&](const Value* operand) { return is_state(*operand, role); });
  return found == update.operands.end() ? nullptr : *found;
}

const Node* gathered_storage(const Node& gather) {
  const Value* sent = gather.operand("x");
  const Node* node = sent->def;
  if (node->op == &kState) node = update_of(*sent);
  if (node != nullptr && node->op->traits.update) node = node->operand("w")->def;
  return node;
}

Value* overwriting(const Node& node, const Value& operand) {
  const std::vector<int> overwritten = overwritten_operands(node.call());
  for (size_t i = 0; i < overwritten.size(); ++i) {
    if (overwritten[i] < 0) continue;
    if (node.operands.at(static_cast<size_t>(overwritten[i])) == &operand) return node.result(i);
  }
  return nullptr;
}

}  // namespace weft

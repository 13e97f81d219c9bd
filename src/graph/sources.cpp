#include "graph/sources.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "graph/ops/ops.h"

namespace weft {

const std::string& source_name(const Node& node) {
  CHECK(node.op == &kInput || node.op == &kParam, node.op->name(), " has no name");
  return std::get<std::string>(node.attr("name"));
}

const std::vector<std::string>& dim_names(const Node& node) {
  static const std::vector<std::string> none;
  if (node.op != &kInput && node.op != &kParam) return none;
  return std::get<std::vector<std::string>>(node.attr("dims"));
}

const StateKey& state_key(const Node& node) {
  CHECK(node.op == &kState, node.op->name(), " is not a state");
  return std::get<StateKey>(node.attr("key"));
}

bool is_trained(const Node& param) {
  const Value* value = param.result();
  const auto reads_constant = [&](const Node* user) {
    if (user->op->constants.empty()) return false;
    const std::vector<std::string> names = split(user->op->constants, ' ');
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return user->operand(name) == value; });
  };
  return is_floating(value->type.dtype) &&
         std::none_of(value->users.begin(), value->users.end(), reads_constant);
}

std::vector<std::string> stored_params(const Node& node) {
  if (node.op == &kBucket) return std::get<std::vector<std::string>>(node.attr("members"));
  CHECK(node.op == &kParam, node.op->name(), " stores no parameter");
  return {source_name(node)};
}

Value* find_input(const Graph& graph, std::string_view name) {
  for (const auto& node : graph.order()) {
    if (node->op == &kInput && source_name(*node) == name) return node->result();
  }
  return nullptr;
}

Value* find_state(const Graph& graph, const StateKey& key) {
  for (const auto& node : graph.order()) {
    if (node->op == &kState && state_key(*node) == key) return node->result();
  }
  return nullptr;
}

bool is_state(const Value& value, StateRole role) {
  return value.def->op == &kState && state_key(*value.def).role == role;
}

}  // namespace weft

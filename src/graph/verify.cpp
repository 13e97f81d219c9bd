// The checks that run after every pass. A failure is a bug in Weft, so it throws InternalError.
#include "graph/verify.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "graph/ops/ops.h"
#include "graph/text.h"

namespace weft {

namespace {

void check_operand_count(const Node& node) {
  size_t required = 0;
  size_t most = 0;
  bool variadic = false;
  for (const auto& spec : node.op->parsed().operands) {
    required += spec.kind == OperandKind::Required ? 1 : 0;
    most += 1;
    variadic |= spec.kind == OperandKind::Variadic;
  }
  CHECK(node.operands.size() >= required && (variadic || node.operands.size() <= most),
        print_node(node), ": ", node.operands.size(), " operands");
}

void check_types(const Node& node) {
  if (node.op->infer == nullptr) return;
  Call call = node.call();
  call.results.clear();
  std::vector<TensorType> inferred = node.op->infer(call);
  CHECK(inferred.size() == node.results.size(), print_node(node), ": results");
  for (size_t i = 0; i < inferred.size(); ++i) {
    const TensorType& type = node.results[i]->type;
    CHECK(is_inferred(*node.op, type, inferred[i]), print_node(node), ": infer gives ",
          to_string(inferred[i]));
  }
}

using Positions = std::unordered_map<const Node*, int64_t>;
using ValueSet = std::unordered_set<const Value*>;

// An overwritten value must not be read by a later node, nor be an output.
void check_overwrites(const Node& node, const Positions& position, const ValueSet& outputs) {
  std::vector<int> overwritten = overwritten_operands(node.call());
  for (int operand : overwritten) {
    if (operand < 0) continue;
    const Value* value = node.operands.at(static_cast<size_t>(operand));
    CHECK(!outputs.contains(value), "%", value->name, " is overwritten by ", print_node(node),
          " and is an output");
    for (const Node* user : value->users) {
      CHECK(user == &node || position.at(user) < position.at(&node), "%", value->name,
            " is overwritten by ", print_node(node), " and read after it by ", print_node(*user));
    }
  }
}

}  // namespace

void verify(const Graph& graph) {
  const Positions position = positions(graph);
  std::unordered_map<const Value*, std::vector<const Node*>> uses;
  ValueSet defined;
  ValueSet outputs;
  for (const auto& output : graph.outputs()) outputs.insert(output.value);
  for (const auto& owned : graph.order()) {
    const Node& node = *owned;
    check_operand_count(node);
    for (const Value* operand : node.operands) {
      CHECK(defined.contains(operand), print_node(node), ": %", operand->name,
            " is used before it is defined");
      CHECK(!operand->type.future || node.op == &kWait, print_node(node), ": %", operand->name,
            " is a future, which only wait may read");
      uses[operand].push_back(&node);
    }
    for (const auto& value : node.results) {
      CHECK(graph.find_value(value->name) == value.get(), "%", value->name,
            " is not in the name table");
      defined.insert(value.get());
    }
    check_types(node);
    check_overwrites(node, position, outputs);
  }
  for (const auto& owned : graph.order()) {
    for (const auto& value : owned->results) {
      auto& expected = uses[value.get()];
      std::vector<const Node*> users(value->users.begin(), value->users.end());
      std::sort(expected.begin(), expected.end());
      std::sort(users.begin(), users.end());
      CHECK(expected == users, "the use list of %", value->name, " is wrong");
    }
  }
  for (const auto& output : graph.outputs()) {
    CHECK(defined.contains(output.value), "output ", output.name(), " is not defined");
    CHECK(!output.value->type.future, "output ", output.name(), " is a future");
  }
}

}  // namespace weft

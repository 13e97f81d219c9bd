// A fused node takes the position of the node it replaces, so positions stay valid.
#include "passes/fuse_scope.h"

#include "base/text.h"

namespace weft {

FuseScope::FuseScope(Graph& graph) : graph_(graph), position_(positions(graph)) {
  for (const auto& output : graph.outputs()) outputs_.insert(output.value);
}

bool FuseScope::is_before(const Node* one, const Node* other) const {
  return position_.at(one) < position_.at(other);
}

Node* FuseScope::only_reader(const Value* value) const {
  return value->users.size() == 1 && !outputs_.contains(value) ? value->users[0] : nullptr;
}

void FuseScope::move_before(Node* node, Node* before) {
  graph_.move_before(node, before);
  position_[node] = position_.at(before);
}

Node* FuseScope::fuse(Node* at, Fused fused) {
  NodeOptions options{.path = at->path, .phase = at->phase};
  for (size_t i = 0; i < fused.results.size(); ++i) {
    const Value* result = fused.results[i];
    options.result_names.push_back(
        result != nullptr ? result->name + ".fused"
                          : cat(fused.results[0]->name, ".", fused.op->parsed().results[i].name));
  }
  Node* made =
      graph_.insert(at, *fused.op, std::move(fused.operands), std::move(fused.attrs), options);
  made->recomputed = at->recomputed;
  position_[made] = position_.at(at);
  for (size_t i = 0; i < fused.results.size(); ++i) {
    Value* from = fused.results[i];
    if (from == nullptr) continue;
    graph_.set_type(made->result(i), from->type);
    graph_.replace_uses(from, made->result(i));
    if (outputs_.erase(from) > 0) outputs_.insert(made->result(i));
  }
  for (Node* part : fused.parts) graph_.erase(part);
  return made;
}

}  // namespace weft

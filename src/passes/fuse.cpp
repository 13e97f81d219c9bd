// Fuses trees of elementwise ops whose intermediates have one reader into one node that makes a
// single pass over memory. It replaces the last op, and every statement rounds as the separate op
// did. The loss and the gradient of its logits are fused at the position of the loss; other
// neighbours that read or write the same memory are fused as well (fuse_neighbours.h).
//
//   %d = dropout(%y, %rng; rate=0.1, stream=7) : f32[4,8]
//   %s = add(%x, %d) : f32[4,8]
// becomes
//   %s.fused = fused(%x, %y, %rng; body="t0:f32 = dropout($1, $2; rate=0.1, stream=7);
//                                        t1:f32 = add($0, t0)") : f32[4,8]
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "graph/fused_body.h"
#include "graph/ops/ops.h"
#include "passes/fuse_neighbours.h"
#include "passes/pass.h"

namespace weft {

namespace {

// For each overwritten value, the node that overwrites it.
std::unordered_map<const Value*, const Node*> overwriters(const Graph& graph) {
  std::unordered_map<const Value*, const Node*> map;
  for (const auto& node : graph.order()) {
    if (node->op->overwrites.empty()) continue;
    for (int operand : overwritten_operands(node->call())) {
      if (operand >= 0) map[node->operands.at(static_cast<size_t>(operand))] = node.get();
    }
  }
  return map;
}

constexpr size_t kMaxOperands = 8;

// A tree being grown: its nodes and the values it reads from outside.
struct Tree {
  std::unordered_set<const Node*> nodes;
  std::vector<Value*> operands;  // in traversal order from the root
  FusedBody body;
};

class Fuser {
 public:
  explicit Fuser(Graph& graph)
      : graph_(graph), position_(positions(graph)), overwriter_(overwriters(graph)) {
    for (const auto& output : graph.outputs()) outputs_.insert(output.value);
    int64_t waits = 0;
    for (const auto& node : graph.order()) {
      waits += node->op == &kWait ? 1 : 0;
      waits_before_[node.get()] = waits;
    }
  }

  void run() {
    // From the end: a node that is not yet in a tree is the root of a new one.
    std::vector<Node*> nodes = graph_.nodes();
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (!taken_.contains(*node) && is_candidate(**node)) fuse_at(*node);
    }
  }

  size_t trees() const { return trees_; }
  size_t fused() const { return fused_; }

 private:
  static bool is_candidate(const Node& node) {
    return node.op->traits.elementwise && node.results.size() == 1;
  }

  // Whether the definition of an operand may move to the position of the root.
  bool can_fuse(const Value* value, const Node& root) const {
    const Node& def = *value->def;
    if (!is_candidate(def) || def.phase != root.phase) return false;
    if (value->users.size() != 1 || outputs_.contains(value)) return false;
    if (value->type.shape != root.result()->type.shape) return false;
    // Compute that can overlap with a collective must not move behind its wait.
    if (waits_before_.at(&def) != waits_before_.at(&root)) return false;
    for (const Value* operand : def.operands) {
      auto found = overwriter_.find(operand);
      if (found != overwriter_.end() && position_.at(found->second) < position_.at(&root)) {
        return false;
      }
    }
    return true;
  }

  void fuse_at(Node* root) {
    Tree tree;
    tree.nodes.insert(root);
    grow(*root, tree, outside(*root));
    if (tree.nodes.size() < 2) return;
    emit(*root, tree);
    Node* fused = graph_.insert(
        root, kFused, tree.operands, {Attr(print_fused_body(tree.body))},
        {.name = root->result()->name + ".fused", .path = root->path, .phase = root->phase});
    graph_.set_type(fused->result(), root->result()->type);
    fused->recomputed = root->recomputed;
    position_[fused] = position_.at(root);
    waits_before_[fused] = waits_before_.at(root);
    graph_.replace_uses(root->result(), fused->result());
    if (outputs_.erase(root->result()) > 0) outputs_.insert(fused->result());
    erase_tree(root, tree);
    ++trees_;
    fused_ += tree.nodes.size();
  }

  static std::vector<Value*> outside(const Node& node) {
    std::vector<Value*> values;
    for (Value* operand : node.operands) add_new(values, operand);
    return values;
  }

  static void add_new(std::vector<Value*>& values, Value* value) {
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }

  // Adds definitions, breadth first, while the number of operands stays within the limit.
  void grow(const Node& root, Tree& tree, std::vector<Value*> edge) {
    for (size_t i = 0; i < edge.size();) {
      Value* value = edge[i];
      if (!can_fuse(value, root)) {
        ++i;
        continue;
      }
      std::vector<Value*> wider = edge;
      wider.erase(wider.begin() + static_cast<std::ptrdiff_t>(i));
      for (Value* operand : value->def->operands) add_new(wider, operand);
      if (wider.size() > kMaxOperands) {
        ++i;
        continue;
      }
      tree.nodes.insert(value->def);
      edge = std::move(wider);
    }
  }

  // Emits statements in order of evaluation; returns the index of the node's statement.
  size_t emit(const Node& node, Tree& tree) {
    FusedStatement statement{.name = "",
                             .dtype = node.result()->type.dtype,
                             .op = node.op,
                             .args = {},
                             .attrs = node.attrs};
    for (Value* operand : node.operands) {
      if (tree.nodes.contains(operand->def)) {
        statement.args.push_back({false, emit(*operand->def, tree)});
        continue;
      }
      add_new(tree.operands, operand);
      auto at = std::find(tree.operands.begin(), tree.operands.end(), operand);
      statement.args.push_back({true, static_cast<size_t>(at - tree.operands.begin())});
    }
    // The gradient dtype of a cast matters to autodiff only.
    if (node.op == &kCast) statement.attrs.at(kCast.parsed().attr_index("grad")) = std::string();
    statement.name = cat("t", tree.body.size());
    tree.body.push_back(std::move(statement));
    return tree.body.size() - 1;
  }

  void erase_tree(Node* node, const Tree& tree) {
    taken_.insert(node);
    const std::vector<Value*> operands = node->operands;
    graph_.erase(node);
    for (Value* operand : operands) {
      if (tree.nodes.contains(operand->def)) erase_tree(operand->def, tree);
    }
  }

  Graph& graph_;
  std::unordered_map<const Node*, int64_t> position_;
  std::unordered_map<const Node*, int64_t> waits_before_;
  std::unordered_set<const Value*> outputs_;
  std::unordered_map<const Value*, const Node*> overwriter_;
  std::unordered_set<const Node*> taken_;  // erased: must not be dereferenced
  size_t trees_ = 0;
  size_t fused_ = 0;
};

// The gradient node that reads the same logits as this loss, if nothing else reads them or lse.
Node* gradient_beside(const Graph& graph, const Node& loss) {
  const Value* lse = loss.result(1);
  const Value* logits = loss.operands[0];
  if (lse->users.size() != 1 || logits->users.size() != 2) return nullptr;
  for (const auto& output : graph.outputs()) {
    if (output.value == lse || output.value == logits) return nullptr;
  }
  Node* grad = lse->users[0];
  const bool same = grad->op == &kCrossEntropyGrad && grad->operands[1] == logits &&
                    grad->operands[2] == loss.operands[1] && grad->operands[4] == loss.operands[2];
  // The gradient moves up to the loss, so the gradient of the loss itself must be a source.
  return same && grad->operands[0]->def->op->traits.source ? grad : nullptr;
}

// Fuses each loss with the gradient of its logits; returns the number of fused pairs.
size_t fuse_losses(Graph& graph) {
  size_t fused = 0;
  const auto position = positions(graph);
  std::unordered_set<const Node*> moved;
  // Keeps only the losses: other nodes may be erased during the loop.
  std::vector<Node*> losses = graph.nodes();
  std::erase_if(losses, [](const Node* node) { return node->op != &kCrossEntropy; });
  for (Node* loss : losses) {
    Node* grad = gradient_beside(graph, *loss);
    if (grad == nullptr) continue;
    Node* source = grad->operands[0]->def;
    if (position.at(source) > position.at(loss) && moved.insert(source).second) {
      graph.move_before(source, loss);
    }
    Node* both = graph.insert(
        loss, kCrossEntropyBoth,
        {grad->operands[0], loss->operands[0], loss->operands[1], loss->operands[2]}, {},
        {.path = loss->path,
         .phase = loss->phase,
         .result_names = {grad->result()->name + ".fused", loss->result()->name + ".fused"}});
    graph.set_type(both->result(0), grad->result()->type);
    graph.set_type(both->result(1), loss->result()->type);
    graph.replace_uses(grad->result(), both->result(0));
    graph.replace_uses(loss->result(), both->result(1));
    graph.erase(grad);
    graph.erase(loss);
    ++fused;
  }
  return fused;
}

bool run(Graph& graph, PassContext& context) {
  const size_t losses = fuse_losses(graph);
  const std::string fused = fuse_neighbours(graph);
  Fuser fuser(graph);
  fuser.run();
  context.note = fuser.trees() == 0 ? "no chains of elementwise ops"
                                    : cat(fuser.fused(), " ops in ", fuser.trees(), " fused nodes");
  if (losses > 0) context.note += cat(", ", losses, " losses fused with their gradient");
  if (!fused.empty()) context.note += cat(", ", fused);
  return losses + fuser.trees() != 0 || !fused.empty();
}

}  // namespace

constexpr Pass fuse{
    .name = "fuse",
    .doc =
        "Fuses trees of elementwise ops whose intermediate values have one reader into one node of "
        "at most 8 operands, the loss with the gradient of its logits, and neighbours that read or "
        "write the same memory: a matmul with the sum it is added to, a norm with the residual sum "
        "before it, the gradients of norms and gelu with the sums next to them, the gradient of a "
        "swiglu with the recomputed swiglu. Every op rounds as it did separately, so the bits do "
        "not change.",
    .needs = {},
    .gives = {},
    .run = run,
};

}  // namespace weft

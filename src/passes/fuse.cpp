// Fuses trees of elementwise ops whose intermediates have one reader into one node that makes a
// single pass over memory. It replaces the last op, and every statement rounds as the separate op
// did. Before that, neighbours that read or write the same memory are fused by one rule for each
// kind (fuse_neighbours.cpp).
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
#include "passes/fuse_scope.h"
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
  std::vector<Node*> evaluated;  // the node of each statement
};

class TreeFuser {
 public:
  explicit TreeFuser(Graph& graph) : scope_(graph), overwriter_(overwriters(graph)) {}

  void run() {
    // From the end: a node that is not yet in a tree is the root of a new one.
    std::vector<Node*> nodes = scope_.graph().nodes();
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
    if (scope_.only_reader(value) == nullptr) return false;
    if (value->type.shape != root.result()->type.shape) return false;
    if (scope_.is_wait_between(&def, &root)) return false;
    for (const Value* operand : def.operands) {
      auto found = overwriter_.find(operand);
      if (found != overwriter_.end() && scope_.is_before(found->second, &root)) return false;
    }
    return true;
  }

  void fuse_at(Node* root) {
    Tree tree;
    tree.nodes.insert(root);
    grow(*root, tree, outside(*root));
    if (tree.nodes.size() < 2) return;
    emit(root, tree);
    for (const Node* node : tree.evaluated) taken_.insert(node);
    scope_.fuse(root, {.op = &kFused,
                       .operands = tree.operands,
                       .attrs = {Attr(print_fused_body(tree.body))},
                       .results = {root->result()},
                       .parts = {tree.evaluated.rbegin(), tree.evaluated.rend()}});
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
  size_t emit(Node* node, Tree& tree) {
    FusedStatement statement{.name = "",
                             .dtype = node->result()->type.dtype,
                             .op = node->op,
                             .args = {},
                             .attrs = node->attrs};
    for (Value* operand : node->operands) {
      if (tree.nodes.contains(operand->def)) {
        statement.args.push_back({false, emit(operand->def, tree)});
        continue;
      }
      add_new(tree.operands, operand);
      auto at = std::find(tree.operands.begin(), tree.operands.end(), operand);
      statement.args.push_back({true, static_cast<size_t>(at - tree.operands.begin())});
    }
    // The gradient dtype of a cast matters to autodiff only.
    if (node->op == &kCast) statement.attrs.at(kCast.parsed().attr_index("grad")) = std::string();
    statement.name = cat("t", tree.body.size());
    tree.body.push_back(std::move(statement));
    tree.evaluated.push_back(node);
    return tree.body.size() - 1;
  }

  FuseScope scope_;
  std::unordered_map<const Value*, const Node*> overwriter_;
  std::unordered_set<const Node*> taken_;  // erased: must not be dereferenced
  size_t trees_ = 0;
  size_t fused_ = 0;
};

bool run(Graph& graph, PassContext& context) {
  const std::string neighbours = fuse_neighbours(graph);
  TreeFuser trees(graph);
  trees.run();
  context.note = trees.trees() == 0 ? "no chains of elementwise ops"
                                    : cat(trees.fused(), " ops in ", trees.trees(), " fused nodes");
  if (!neighbours.empty()) context.note += cat(", ", neighbours);
  return trees.trees() > 0 || !neighbours.empty();
}

}  // namespace

constexpr Pass fuse{
    .name = "fuse",
    .doc =
        "Fuses trees of elementwise ops whose intermediate values have one reader into one node of "
        "at most 8 operands, the loss with the gradient of its logits, and neighbours that read or "
        "write the same memory: a matmul with the sum it is added to, a norm with the residual sum "
        "before it, the gradients of norms and gelu with the sums next to them. Every op rounds as "
        "it did separately, so the bits do not change.",
    .needs = {},
    .gives = {},
    .run = run,
};

}  // namespace weft

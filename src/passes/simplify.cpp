// Removes nodes without changing any result: folds exact casts, merges equal nodes and deletes dead
// code. One forward and one backward walk reach the fixed point, because an edit affects only later
// nodes.
//
//   %a = cast(%x; dtype=f32) : f32[8]        (x is bf16)
//   %b = cast(%a; dtype=bf16) : bf16[8]
//   %y = gelu(%b) : bf16[8]
//   %z = gelu(%x) : bf16[8]
//   %s = add(%y, %z) : bf16[8]
// becomes
//   %y = gelu(%x) : bf16[8]
//   %s = add(%y, %y) : bf16[8]
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "graph/ops/ops.h"
#include "passes/pass.h"

namespace weft {

namespace {

// Whether `to` represents every value of `from` exactly.
bool is_exact(DType from, DType to) {
  if (from == to || to == DType::F64) return true;
  return to == DType::F32 && (from == DType::BF16 || from == DType::F16);
}

// Everything that determines the value of a node. A recomputed node must not be merged with its
// original.
std::string identity(const Node& node) {
  std::string text = cat(node.op->name(), node.recomputed ? "!" : "");
  for (const Value* operand : node.operands) text += "%" + operand->name;
  for (const Attr& attr : node.attrs) text += ";" + to_string(attr);
  if (node.op->traits.source) text += ":" + to_string(node.result()->type);
  return text;
}

class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : graph_(graph) {}

  std::string run() {
    for (Node* node : graph_.nodes()) {
      if (node->op == &kCast) fold_cast(node);
      merge(node);
    }
    erase_dead();
    if (merged_ + folded_ + erased_ == 0) return "";
    return cat(merged_, " merged, ", folded_, " casts folded, ", erased_, " erased");
  }

 private:
  // A cast skips exact casts before it, and is removed if it then changes nothing.
  void fold_cast(Node* node) {
    while (true) {
      const Node* inner = node->operand("x")->def;
      if (inner->op != &kCast || inner->recomputed != node->recomputed) break;
      Value* origin = inner->operand("x");
      if (!is_exact(origin->type.dtype, inner->result()->type.dtype)) break;
      graph_.replace_operand(node, "x", origin);
      ++folded_;
    }
    if (node->operand("x")->type.dtype != node->result()->type.dtype) return;
    ++folded_;
    graph_.replace_uses(node->result(), node->operand("x"));
  }

  void merge(Node* node) {
    if (has_effect(node->call())) return;
    auto [first, is_new] = first_.emplace(identity(*node), node);
    if (is_new) return;
    for (size_t i = 0; i < node->results.size(); ++i) {
      graph_.replace_uses(node->result(i), first->second->result(i));
    }
    // Sources are kept even if nothing reads them, so a duplicate is erased here.
    graph_.erase(node);
    ++merged_;
  }

  // Sources stay: they are bound from outside the program.
  void erase_dead() {
    for (const auto& output : graph_.outputs()) outputs_.insert(output.value);
    std::vector<Node*> nodes = graph_.nodes();
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if ((*node)->op->traits.source || has_effect((*node)->call()) || is_used(**node)) continue;
      graph_.erase(*node);
      ++erased_;
    }
  }

  bool is_used(const Node& node) const {
    return std::any_of(node.results.begin(), node.results.end(), [&](const auto& value) {
      return !value->users.empty() || outputs_.contains(value.get());
    });
  }

  Graph& graph_;
  std::unordered_map<std::string, Node*> first_;
  std::unordered_set<const Value*> outputs_;
  size_t merged_ = 0;
  size_t folded_ = 0;
  size_t erased_ = 0;
};

bool run(Graph& graph, PassContext& context) {
  context.note = Simplifier(graph).run();
  const bool changed = !context.note.empty();
  if (!changed) context.note = "nothing is dead, duplicate or foldable";
  return changed;
}

}  // namespace

constexpr Pass simplify{
    .name = "simplify",
    .doc =
        "Removes dead nodes, merges equal ones and folds casts where that is exact (never a cast "
        "to a narrower type and back). Recomputed nodes are not merged with their originals.",
    .needs = {},
    .gives = {},
    .run = run,
};

}  // namespace weft

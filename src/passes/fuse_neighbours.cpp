// Each fusion matches one kind of node and the readers of its operands and results. A fused node
// replaces one of its parts and reads only values defined before that position. A sum over rows
// moves up to the value it sums.
#include "passes/fuse_neighbours.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "graph/builder.h"
#include "graph/ops/ops.h"

namespace weft {

namespace {

class NeighbourFuser {
 public:
  explicit NeighbourFuser(Graph& graph) : graph_(graph), position_(positions(graph)) {
    for (const auto& output : graph.outputs()) outputs_.insert(output.value);
    int64_t waits = 0;
    for (const auto& node : graph.order()) {
      waits += node->op == &kWait ? 1 : 0;
      waits_before_[node.get()] = waits;
    }
  }

  std::string run() {
    each(kAddInPlace, [&](Node* node) { return add_matmul(node); });
    each(kAccumulate, [&](Node* node) { return add_matmul(node); });
    each(kAdd, [&](Node* node) { return add_table(node); });
    each(kLayerNorm, [&](Node* node) { return norm_of_sum(node, kAddLayerNorm); });
    each(kRmsNorm, [&](Node* node) { return norm_of_sum(node, kAddRmsNorm); });
    each(kLayerNormGrad, [&](Node* node) { return layer_norm_grad(node); });
    each(kRmsNormGrad, [&](Node* node) { return rms_norm_grad(node); });
    each(kGeluGrad, [&](Node* node) { return gelu_grad(node); });
    return join(done_, ", ");
  }

 private:
  // Tries the fusion at every node of the op and counts the fused ops by name.
  template <class Try>
  void each(const OpDef& op, Try try_fuse) {
    std::vector<Node*> nodes = graph_.nodes();
    std::erase_if(nodes, [&](const Node* node) { return node->op != &op; });
    std::map<std::string_view, size_t> fused;
    for (Node* node : nodes) {
      const OpDef* made = try_fuse(node);
      if (made != nullptr) ++fused[made->name()];
    }
    for (const auto& [name, count] : fused) done_.push_back(cat(count, " ", name));
  }

  bool is_before(const Value* value, const Node* node) const { return is_before(value->def, node); }

  bool is_before(const Node* one, const Node* other) const {
    return position_.at(one) < position_.at(other);
  }

  // The only reader of a value that is not an output, or nullptr.
  Node* only_reader(const Value* value) const {
    return value->users.size() == 1 && !outputs_.contains(value) ? value->users[0] : nullptr;
  }

  // A sum over the rows of `value` in this dtype, or nullptr.
  static Node* row_sum(const Value* value, DType dtype) {
    for (Node* user : value->users) {
      if (user->op == &kSumRows && user->result()->type.dtype == dtype) return user;
    }
    return nullptr;
  }

  Node* insert(Node* before, const OpDef& op, std::vector<Value*> operands, Attrs attrs,
               const std::vector<const Value*>& results) {
    NodeOptions options{.path = before->path, .phase = before->phase};
    for (size_t i = 0; i < results.size(); ++i) {
      options.result_names.push_back(results[i] != nullptr
                                         ? results[i]->name + ".fused"
                                         : cat(results[0]->name, ".", op.parsed().results[i].name));
    }
    Node* made = graph_.insert(before, op, std::move(operands), std::move(attrs), options);
    made->recomputed = before->recomputed;
    position_[made] = position_.at(before);
    waits_before_[made] = waits_before_.at(before);
    return made;
  }

  // Replaces `from`, if any, by the result `to`.
  void replace(Value* from, Value* to) {
    if (from == nullptr) return;
    graph_.set_type(to, from->type);
    graph_.replace_uses(from, to);
    if (outputs_.erase(from) > 0) outputs_.insert(to);
  }

  // The sum directly follows the matmul, so the accumulator is already defined at the matmul.
  const OpDef* add_matmul(Node* sum) {
    Value* acc = sum->operands[0];
    Node* matmul = sum->operands[1]->def;
    const bool counted = sum->op == &kAccumulate;
    if (matmul->op != &kMatmul || matmul->operands.size() > 2) return nullptr;
    if (only_reader(matmul->result()) != sum || matmul->phase != sum->phase) return nullptr;
    if (matmul->result()->type.dtype != DType::F32 || acc->type.dtype != DType::F32) {
      return nullptr;
    }
    // In a tree over micro-batches, matmuls are leaves.
    if (counted && std::get<int64_t>(sum->attr("level")) >= 0) return nullptr;
    if (only_reader(acc) != sum) return nullptr;
    const bool from_outside = acc->def->op->traits.source;
    if (!counted && from_outside) return nullptr;
    if (counted && !is_before(sum->operands[2], matmul)) return nullptr;
    if (!is_before(acc, matmul)) {
      if (!from_outside) return nullptr;
      graph_.move_before(acc->def, matmul);
      position_[acc->def] = position_.at(matmul);
    }
    std::vector<Value*> operands = {acc, matmul->operands[0], matmul->operands[1]};
    if (counted) operands.push_back(sum->operands[2]);
    const OpDef& op = counted ? kMatmulAccumulate : kMatmulAdd;
    Node* made =
        insert(matmul, op, operands, {matmul->attr("ta"), matmul->attr("tb")}, {sum->result()});
    replace(sum->result(), made->result());
    graph_.erase(sum);
    graph_.erase(matmul);
    return &op;
  }

  // The two gradients of an embedding table that is also the head: the later one is added to the
  // earlier one.
  const OpDef* add_table(Node* sum) {
    Value* acc = sum->operands[0];
    Node* grad = sum->operands[1]->def;
    if (grad->op != &kEmbeddingGrad) {
      acc = sum->operands[1];
      grad = sum->operands[0]->def;
    }
    if (grad->op != &kEmbeddingGrad || grad->phase != sum->phase) return nullptr;
    if (only_reader(grad->result()) != sum || only_reader(acc) != sum) return nullptr;
    if (grad->result()->type.dtype != DType::F32 || acc->type.dtype != DType::F32) return nullptr;
    if (acc->def->op->traits.source || !is_before(acc, grad)) return nullptr;
    Node* made = insert(grad, kEmbeddingGradAdd, {acc, grad->operands[0], grad->operands[1]},
                        {grad->attr("rows")}, {sum->result()});
    replace(sum->result(), made->result());
    graph_.erase(sum);
    graph_.erase(grad);
    return &kEmbeddingGradAdd;
  }

  // y = norm(x + r), where nothing reads the sum before the norm does.
  const OpDef* norm_of_sum(Node* norm, const OpDef& op) {
    Value* x = norm->operands[0];
    Node* add = x->def;
    if (add->op != &kAdd || add->phase != norm->phase || add->recomputed != norm->recomputed) {
      return nullptr;
    }
    // Compute that can overlap with a collective must not move behind its wait.
    if (waits_before_.at(add) != waits_before_.at(norm)) return nullptr;
    for (const Node* user : x->users) {
      if (position_.at(user) < position_.at(norm)) return nullptr;
    }
    for (const Value* operand : add->operands) {
      // A chain of elementwise ops that ends in the sum is fused as a chain.
      if (operand->def->op->traits.elementwise && operand->users.size() == 1) return nullptr;
    }
    std::vector<Value*> operands = add->operands;
    operands.insert(operands.end(), norm->operands.begin() + 1, norm->operands.end());
    std::vector<const Value*> results = {x};
    for (const auto& result : norm->results) results.push_back(result.get());
    Node* made = insert(norm, op, operands, norm->attrs, results);
    for (size_t i = 0; i < norm->results.size(); ++i) {
      replace(norm->result(i), made->result(i + 1));
    }
    graph_.erase(norm);
    replace(x, made->result(0));
    graph_.erase(add);
    return &op;
  }

  // The node that adds another gradient of x to the norm's dx, or nullptr. The other gradient must
  // already be defined.
  Node* sum_with_more(const Node& grad) const {
    const Value* dx = grad.result(0);
    Node* add = only_reader(dx);
    if (add == nullptr || add->op != &kAdd || add->phase != grad.phase) return nullptr;
    const Value* more = more_than(*add, dx);
    return more != dx && is_before(more, &grad) ? add : nullptr;
  }

  static Value* more_than(const Node& add, const Value* dx) {
    return add.operands[add.operands[0] == dx ? 1 : 0];
  }

  const OpDef* rms_norm_grad(Node* grad) {
    Node* add = sum_with_more(*grad);
    if (add == nullptr) return nullptr;
    std::vector<Value*> operands = grad->operands;
    operands.push_back(more_than(*add, grad->result(0)));
    Node* made =
        insert(grad, kRmsNormGradAdd, operands, grad->attrs, {add->result(), grad->result(1)});
    replace(add->result(), made->result(0));
    replace(grad->result(1), made->result(1));
    graph_.erase(add);
    graph_.erase(grad);
    return &kRmsNormGradAdd;
  }

  const OpDef* layer_norm_grad(Node* grad) {
    Node* add = sum_with_more(*grad);
    Value* dx = add != nullptr ? add->result() : grad->result(0);
    const DType dtype = grad->result(1)->type.dtype;
    Node* bias_grad = row_sum(grad->operands[0], dtype);
    Node* sum = row_sum(dx, dtype);
    if (bias_grad != nullptr && position_.at(bias_grad) < position_.at(grad)) bias_grad = nullptr;
    if (add == nullptr && bias_grad == nullptr && sum == nullptr) return nullptr;
    std::vector<Value*> operands = grad->operands;
    if (add != nullptr) operands.push_back(more_than(*add, grad->result(0)));
    Value* db = bias_grad != nullptr ? bias_grad->result() : nullptr;
    Value* total = sum != nullptr ? sum->result() : nullptr;
    Node* made =
        insert(grad, kLayerNormGradSums, operands, grad->attrs, {dx, grad->result(1), db, total});
    replace(total, made->result(3));
    if (sum != nullptr) graph_.erase(sum);
    replace(db, made->result(2));
    if (bias_grad != nullptr) graph_.erase(bias_grad);
    replace(grad->result(1), made->result(1));
    replace(dx, made->result(0));
    if (add != nullptr) graph_.erase(add);
    graph_.erase(grad);
    return &kLayerNormGradSums;
  }

  const OpDef* gelu_grad(Node* grad) {
    Value* dx = grad->result();
    Node* sum = nullptr;
    for (Node* user : dx->users) {
      if (user->op == &kSumRows) sum = user;
    }
    if (sum == nullptr) return nullptr;
    Node* made =
        insert(grad, kGeluGradSum, grad->operands, {sum->attr("out")}, {dx, sum->result()});
    replace(sum->result(), made->result(1));
    graph_.erase(sum);
    replace(dx, made->result(0));
    graph_.erase(grad);
    return &kGeluGradSum;
  }

  Graph& graph_;
  std::unordered_map<const Node*, int64_t> position_;
  std::unordered_map<const Node*, int64_t> waits_before_;
  std::unordered_set<const Value*> outputs_;
  std::vector<std::string> done_;
};

}  // namespace

std::string fuse_neighbours(Graph& graph) {
  return NeighbourFuser(graph).run();
}

}  // namespace weft

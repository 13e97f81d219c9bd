// Each rule matches one kind of node and the readers of its operands and results. A fused node
// replaces one of its parts and reads only values defined before that position. A sum over rows
// moves up to the value it sums.
#include "passes/fuse_neighbours.h"

#include <map>

#include "base/text.h"
#include "graph/ops/ops.h"
#include "passes/fuse_scope.h"

namespace weft {

namespace {

// The gradient of the logits reads the same logits, targets and count as the loss, and nothing else
// reads the logits or lse. It moves up to the loss, so the gradient of the loss must be a source.
Node* loss_with_gradient(FuseScope& scope, Node* loss) {
  Value* logits = loss->operand("logits");
  Value* targets = loss->operand("targets");
  Value* count = loss->operand("count");
  Node* grad = scope.only_reader(loss->result("lse"));
  if (grad == nullptr || grad->op != &kCrossEntropyGrad) return nullptr;
  if (logits->users.size() != 2 || scope.is_output(logits)) return nullptr;
  if (grad->operand("logits") != logits || grad->operand("targets") != targets ||
      grad->operand("count") != count) {
    return nullptr;
  }
  Value* dloss = grad->operand("dloss");
  if (!dloss->def->op->traits.source) return nullptr;
  if (scope.is_before(loss, dloss->def)) scope.move_before(dloss->def, loss);
  return scope.fuse(loss, {.op = &kCrossEntropyBoth,
                           .operands = {dloss, logits, targets, count},
                           .attrs = {},
                           .results = {grad->result("dlogits"), loss->result("loss")},
                           .parts = {grad, loss}});
}

// Whether the accumulator is defined before the matmul; a source is moved there.
bool define_before(FuseScope& scope, const Value* acc, Node* matmul) {
  if (scope.is_before(acc->def, matmul)) return true;
  if (!acc->def->op->traits.source) return false;
  scope.move_before(acc->def, matmul);
  return true;
}

// A matmul that is added to an accumulator, in place or over micro-batches.
Node* matmul_with_sum(FuseScope& scope, Node* sum) {
  Value* acc = sum->operand("acc");
  Node* matmul = sum->operand("g")->def;
  const bool counted = sum->op == &kAccumulate;
  if (matmul->op != &kMatmul || matmul->operand("bias") != nullptr) return nullptr;
  if (scope.only_reader(matmul->result()) != sum || matmul->phase != sum->phase) return nullptr;
  if (matmul->result()->type.dtype != DType::F32 || acc->type.dtype != DType::F32) return nullptr;
  // In a tree over micro-batches, matmuls are leaves.
  if (counted && std::get<int64_t>(sum->attr("level")) >= 0) return nullptr;
  if (scope.only_reader(acc) != sum) return nullptr;
  if (!counted && acc->def->op->traits.source) return nullptr;
  if (counted && !scope.is_before(sum->operand("micro")->def, matmul)) return nullptr;
  if (!define_before(scope, acc, matmul)) return nullptr;
  std::vector<Value*> operands = {acc, matmul->operand("a"), matmul->operand("b")};
  if (counted) operands.push_back(sum->operand("micro"));
  return scope.fuse(matmul, {.op = counted ? &kMatmulAccumulate : &kMatmulAdd,
                             .operands = operands,
                             .attrs = {matmul->attr("ta"), matmul->attr("tb")},
                             .results = {sum->result()},
                             .parts = {sum, matmul}});
}

// The operand of an add that is not `one`.
Value* other_operand(const Node& add, const Value* one) {
  return add.operand("a") == one ? add.operand("b") : add.operand("a");
}

// The two gradients of an embedding table that is also the head: the later one is added to the
// earlier one.
Node* table_with_head(FuseScope& scope, Node* sum) {
  const bool second = sum->operand("b")->def->op == &kEmbeddingGrad;
  Node* grad = sum->operand(second ? "b" : "a")->def;
  if (grad->op != &kEmbeddingGrad || grad->phase != sum->phase) return nullptr;
  if (grad->operand("coordinate") != nullptr) return nullptr;
  Value* acc = sum->operand(second ? "a" : "b");
  if (scope.only_reader(grad->result()) != sum || scope.only_reader(acc) != sum) return nullptr;
  if (grad->result()->type.dtype != DType::F32 || acc->type.dtype != DType::F32) return nullptr;
  if (acc->def->op->traits.source || !scope.is_before(acc->def, grad)) return nullptr;
  return scope.fuse(grad, {.op = &kEmbeddingGradAdd,
                           .operands = {acc, grad->operand("ids"), grad->operand("dy")},
                           .attrs = {grad->attr("rows")},
                           .results = {sum->result()},
                           .parts = {sum, grad}});
}

// y = norm(x + r), where nothing reads the sum before the norm does.
Node* norm_of_sum(FuseScope& scope, Node* norm) {
  Value* x = norm->operand("x");
  Node* add = x->def;
  if (add->op != &kAdd || add->phase != norm->phase || add->recomputed != norm->recomputed) {
    return nullptr;
  }
  if (scope.is_wait_between(add, norm)) return nullptr;
  for (const Node* user : x->users) {
    if (scope.is_before(user, norm)) return nullptr;
  }
  for (const Value* operand : add->operands) {
    // A chain of elementwise ops that ends in the sum is fused as a chain.
    if (operand->def->op->traits.elementwise && operand->users.size() == 1) return nullptr;
  }
  FuseScope::Fused fused{.op = norm->op == &kLayerNorm ? &kAddLayerNorm : &kAddRmsNorm,
                         .operands = add->operands,
                         .attrs = norm->attrs,
                         .results = {x},
                         .parts = {norm, add}};
  fused.operands.push_back(norm->operand("w"));
  const bool has_bias = norm->op == &kLayerNorm && norm->operand("b") != nullptr;
  if (has_bias) fused.operands.push_back(norm->operand("b"));
  for (const auto& result : norm->results) fused.results.push_back(result.get());
  return scope.fuse(norm, std::move(fused));
}

// The node that adds another gradient of x to the dx of a norm, or nullptr. The other gradient must
// already be defined.
Node* sum_with_more(const FuseScope& scope, const Node& grad) {
  const Value* dx = grad.result("dx");
  Node* add = scope.only_reader(dx);
  if (add == nullptr || add->op != &kAdd || add->phase != grad.phase) return nullptr;
  const Value* more = other_operand(*add, dx);
  return more != dx && scope.is_before(more->def, &grad) ? add : nullptr;
}

// A sum over the rows of `value` in this dtype, or nullptr.
Node* row_sum(const Value* value, DType dtype) {
  for (Node* user : value->users) {
    if (user->op == &kSumRows && user->result()->type.dtype == dtype) return user;
  }
  return nullptr;
}

Node* rms_norm_grad_with_sum(FuseScope& scope, Node* grad) {
  Node* add = sum_with_more(scope, *grad);
  if (add == nullptr) return nullptr;
  FuseScope::Fused fused{.op = &kRmsNormGradAdd,
                         .operands = grad->operands,
                         .attrs = grad->attrs,
                         .results = {add->result(), grad->result("dw")},
                         .parts = {add, grad}};
  fused.operands.push_back(other_operand(*add, grad->result("dx")));
  return scope.fuse(grad, std::move(fused));
}

Node* layer_norm_grad_with_sums(FuseScope& scope, Node* grad) {
  Node* add = sum_with_more(scope, *grad);
  Value* dx = add != nullptr ? add->result() : grad->result("dx");
  const DType dtype = grad->result("dw")->type.dtype;
  Node* bias_grad = row_sum(grad->operand("dy"), dtype);
  if (bias_grad != nullptr && scope.is_before(bias_grad, grad)) bias_grad = nullptr;
  Node* sum = row_sum(dx, dtype);
  if (add == nullptr && bias_grad == nullptr && sum == nullptr) return nullptr;
  FuseScope::Fused fused{.op = &kLayerNormGradSums,
                         .operands = grad->operands,
                         .attrs = grad->attrs,
                         .results = {dx, grad->result("dw")},
                         .parts = {}};
  if (add != nullptr) fused.operands.push_back(other_operand(*add, grad->result("dx")));
  for (Node* rows : {bias_grad, sum}) {
    fused.results.push_back(rows != nullptr ? rows->result() : nullptr);
  }
  for (Node* part : {sum, bias_grad, add, grad}) {
    if (part != nullptr) fused.parts.push_back(part);
  }
  return scope.fuse(grad, std::move(fused));
}

Node* gelu_grad_with_sum(FuseScope& scope, Node* grad) {
  Node* sum = nullptr;
  for (Node* user : grad->result()->users) {
    if (user->op == &kSumRows) sum = user;
  }
  if (sum == nullptr) return nullptr;
  return scope.fuse(grad, {.op = &kGeluGradSum,
                           .operands = grad->operands,
                           .attrs = {sum->attr("out")},
                           .results = {grad->result(), sum->result()},
                           .parts = {sum, grad}});
}

// A fusion that is tried at every node of an op. It returns the fused node, or nullptr if it does
// not apply.
struct Rule {
  const OpDef* op = nullptr;
  Node* (*fuse)(FuseScope& scope, Node* node) = nullptr;
};

constexpr Rule kRules[] = {
    {&kCrossEntropy, loss_with_gradient},
    {&kAddInPlace, matmul_with_sum},
    {&kAccumulate, matmul_with_sum},
    {&kAdd, table_with_head},
    {&kLayerNorm, norm_of_sum},
    {&kRmsNorm, norm_of_sum},
    {&kLayerNormGrad, layer_norm_grad_with_sums},
    {&kRmsNormGrad, rms_norm_grad_with_sum},
    {&kGeluGrad, gelu_grad_with_sum},
};

}  // namespace

std::string fuse_neighbours(Graph& graph) {
  FuseScope scope(graph);
  std::vector<std::string> done;
  for (const Rule& rule : kRules) {
    // Only nodes of this op: a fusion erases others.
    std::vector<Node*> nodes = graph.nodes();
    std::erase_if(nodes, [&](const Node* node) { return node->op != rule.op; });
    std::map<std::string_view, size_t> fused;
    for (Node* node : nodes) {
      const Node* made = rule.fuse(scope, node);
      if (made != nullptr) ++fused[made->op->name()];
    }
    for (const auto& [name, count] : fused) done.push_back(cat(count, " ", name));
  }
  return join(done, ", ");
}

}  // namespace weft

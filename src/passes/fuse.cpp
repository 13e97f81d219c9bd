// Fuses neighbours that read or write the same memory into one op (ops/fused.cpp), by one rule for
// each kind.
//
//   %d.w.1 = matmul(%d.logits.1, %x.1; ta=true, out="f32")
//   %d.w.sum = add_in_place(%d.w.0, %d.w.1)
// becomes
//   %d.w.sum.fused = matmul_add(%d.w.0, %d.logits.1, %x.1; ta=true)
//
// Each rule matches one kind of node and the readers of its operands and results. A fused node
// replaces one of its parts and reads only values defined before that position. A sum over rows
// moves up to the value it sums.
#include <map>

#include "base/text.h"
#include "graph/ops/ops.h"
#include "passes/fuse_scope.h"
#include "passes/pass.h"

namespace weft {

namespace {

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

// A fusion that is tried at every node of an op. It returns the fused node, or nullptr if it does
// not apply.
struct Rule {
  const OpDef* op = nullptr;
  Node* (*fuse)(FuseScope& scope, Node* node) = nullptr;
};

constexpr Rule kRules[] = {
    {&kAddInPlace, matmul_with_sum},
    {&kAccumulate, matmul_with_sum},
    {&kAdd, table_with_head},
    {&kLayerNormGrad, layer_norm_grad_with_sums},
};

bool run(Graph& graph, PassContext& context) {
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
  context.note = done.empty() ? "no neighbours to fuse" : join(done, ", ");
  return !done.empty();
}

}  // namespace

constexpr Pass fuse{
    .name = "fuse",
    .doc =
        "Fuses neighbours that read or write the same memory: a matmul with the sum it is added "
        "to, the gradient of a table that is also the head with that of the head, the gradient of "
        "a LayerNorm with the sums next to it. Every op rounds as it did separately, so the bits "
        "do not change.",
    .needs = {},
    .gives = {},
    .run = run,
};

}  // namespace weft

// Adds the gradient of the output "loss" with respect to every parameter, as nodes after the
// forward. Contributions to one value are added in order of use, so that tied weights sum in a
// fixed order. Values that do not depend on a parameter get no gradient.
//
//   %loss, %loss.lse = cross_entropy(%logits, %targets, %count) : f32[], f32[4]
//   return loss=%loss
// becomes
//   %loss, %loss.lse = cross_entropy(%logits, %targets, %count) : f32[], f32[4]
//   %loss_scale = input "loss_scale" : f32[]  # bwd
//   %d.logits = cross_entropy_grad(%loss_scale, %logits, %targets, %loss.lse, %count) : ...  # bwd
//   ...
//   return loss=%loss, grad.w=%d.w
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "config/derived.h"
#include "graph/builder.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"
#include "passes/pass.h"

namespace weft {

namespace {

bool is_trained(const Node* node) {
  return node->op == &kParam && weft::is_trained(*node);
}

class Backward {
 public:
  explicit Backward(Graph& graph) : graph_(graph), builder_(graph), forward_(graph.nodes()) {
    builder_.set_phase(Phase::Backward);
    mark_active();
  }

  // Adds all gradients and their outputs; returns the number of parameters. `seed` says what kind
  // of source the loss scale is, the gradient of the loss that seeds the backward.
  size_t run(Value* loss, const OpDef& seed) {
    USER_CHECK(active_.contains(loss), "autodiff: the loss %", loss->name,
               " does not depend on any parameter");
    contributions_[loss].push_back(add_scale(seed, loss->type));
    for (auto node = forward_.rbegin(); node != forward_.rend(); ++node) visit(*node);
    size_t params = 0;
    for (Node* node : forward_) {
      if (!is_trained(node)) continue;
      graph_.add_output({OutputRole::Gradient, source_name(*node)}, gradients_.at(node));
      ++params;
    }
    erase_unused();
    return params;
  }

 private:
  Value* add_scale(const OpDef& seed, const TensorType& type) {
    const std::string name(names::kLossScale);
    Attr source = &seed == &kState ? Attr(StateKey{StateRole::LossScale}) : Attr(name);
    return graph_
        .insert_source(nullptr, seed, std::move(source), type,
                       {.name = name, .phase = Phase::Backward})
        ->result();
  }

  void mark_active() {
    for (const Node* node : forward_) {
      const auto& operands = node->operands;
      if (!is_trained(node) && std::none_of(operands.begin(), operands.end(),
                                            [&](Value* v) { return active_.contains(v); })) {
        continue;
      }
      for (const auto& value : node->results) {
        if (is_floating(value->type.dtype)) active_.insert(value.get());
      }
    }
  }

  void visit(Node* node) {
    builder_.set_path(node->path);
    std::vector<Value*> grads;
    for (const auto& value : node->results) grads.push_back(total(value.get()));
    if (is_trained(node)) {
      Value* param = node->result();
      USER_CHECK(grads[0] != nullptr, "autodiff: the loss does not depend on parameter ",
                 to_string(node->attrs.at(0)), "; remove it from the model");
      // Its dtype may differ: gradients have the reduce dtype.
      CHECK(grads[0]->type.shape == param->type.shape, "the gradient of %", param->name, " is ",
            to_string(grads[0]->type));
      gradients_[node] = grads[0];
      return;
    }
    const bool arrived =
        std::any_of(grads.begin(), grads.end(), [](Value* v) { return v != nullptr; });
    if (!arrived) return;
    USER_CHECK(node->op->traits.differentiable && node->op->vjp != nullptr,
               "autodiff: a gradient reaches %", node->result()->name, ", but ", node->op->name(),
               " is not differentiable");
    Vjp vjp(builder_, *node, std::move(grads));
    contribute(*node, node->op->vjp(vjp));
  }

  // Last operand first: the lists are in reverse order of use.
  void contribute(const Node& node, const std::vector<Value*>& grads) {
    CHECK(grads.size() == node.operands.size(), node.op->name(), " gives ", grads.size(),
          " gradients for ", node.operands.size(), " operands");
    for (size_t i = grads.size(); i-- > 0;) {
      Value* operand = node.operands[i];
      if (!active_.contains(operand)) continue;
      CHECK(grads[i] != nullptr, node.op->name(), " gives no gradient for %", operand->name);
      contributions_[operand].push_back(grads[i]);
    }
  }

  // The sum of all contributions to a value, in order of use; nullptr if there are none.
  Value* total(const Value* value) {
    auto found = contributions_.find(value);
    if (found == contributions_.end()) return nullptr;
    const std::vector<Value*>& parts = found->second;
    Value* sum = parts.back();
    for (size_t i = parts.size() - 1; i-- > 0;) {
      sum = builder_.add(kAdd, {sum, parts[i]}, {}, cat("d.", value->name, ".sum"))->result();
    }
    return sum;
  }

  // Gradient rules add gradients for all operands; those that lead to no parameter are removed.
  void erase_unused() {
    std::unordered_set<const Value*> outputs;
    for (const auto& output : graph_.outputs()) outputs.insert(output.value);
    std::vector<Node*> nodes = graph_.nodes();
    for (size_t i = nodes.size(); i-- > forward_.size();) {
      const auto& results = nodes[i]->results;
      const bool used = std::any_of(results.begin(), results.end(), [&](const auto& value) {
        return !value->users.empty() || outputs.contains(value.get());
      });
      if (!used && !nodes[i]->op->traits.source) graph_.erase(nodes[i]);
    }
  }

  Graph& graph_;
  Builder builder_;
  std::vector<Node*> forward_;
  std::unordered_set<const Value*> active_;  // values that depend on a parameter
  std::unordered_map<const Value*, std::vector<Value*>> contributions_;  // last use first
  std::unordered_map<const Node*, Value*> gradients_;                    // of the parameters
};

bool run(Graph& graph, PassContext& context) {
  if (context.goal == Goal::Evaluate) {
    context.note = "no gradients in evaluation";
    return false;
  }
  Value* loss = graph.find_output({OutputRole::Loss});
  USER_CHECK(loss != nullptr, "autodiff: the graph has no output \"loss\"");
  USER_CHECK(loss->type.dtype == DType::F32 && loss->type.shape.empty(), "autodiff: the loss %",
             loss->name, " is ", to_string(loss->type), ", expected f32[]");
  for (const auto& node : graph.order()) {
    USER_CHECK(node->phase == Phase::Forward,
               "autodiff: the graph already has a backward; run autodiff once");
  }
  // A scale that changes during the run is kept on the device.
  const size_t params = Backward(graph).run(loss, scales_loss(context.config) ? kState : kInput);
  context.note = cat("gradients of ", params, " parameters");
  return true;
}

constexpr Fact kGives[] = {Fact::Differentiated};

}  // namespace

constexpr Pass autodiff{
    .name = "autodiff",
    .doc =
        "Adds the gradient of the output \"loss\" with respect to every parameter as backward "
        "nodes and returns each as \"grad.<parameter>\". The backward is seeded by \"loss_scale\", "
        "which is an input or, for float16, a state. The gradients of several uses of a value are "
        "summed in order of use.",
    .needs = {},
    .gives = kGives,
    .run = run,
};

}  // namespace weft

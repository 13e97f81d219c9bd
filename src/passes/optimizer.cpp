// Turns gradients into updates: with several micro-batches a step each gradient is first added up
// in an f32 state; then one norm over all gradients, one clip, one adamw per parameter.
//
//   return loss=%loss, grad.w=%d.w
// becomes, with accumulation:
//   %grad.w = state "grad.w" : f32[8,8]  # bwd
//   %grad.w.sum = accumulate(%grad.w, %d.w, %micro) : f32[8,8]  # bwd
//   ...
//   %square_sum = square_sum(%grad.w.sum) : i64[12]  # opt
//   %grad_norm = norm(%square_sum) : f32[]  # opt
//   %clip, %clip.count2 = clip(%grad_norm, %adam.count; max_norm=1) : f32[], i32[]  # opt
//   %w.new, %w.new.m2, %w.new.v2 = adamw(%w, %grad.w.sum, %m.w, %v.w, %lr, %clip, %clip.count2) ...
//   return loss=%loss, grad_norm=%grad_norm
#include <map>

#include "base/error.h"
#include "config/derived.h"
#include "graph/builder.h"
#include "graph/ops/ops.h"
#include "passes/pass.h"

namespace weft {

namespace {

struct Trained {
  Node* param = nullptr;
  std::string name;
  Value* grad = nullptr;
};

// Parameters with their gradients, in registration order.
std::vector<Trained> trained_params(const Graph& graph) {
  std::map<std::string_view, Value*> outputs;
  for (const auto& output : graph.outputs()) outputs.emplace(output.name, output.value);
  std::vector<Trained> list;
  for (const auto& node : graph.order()) {
    if (node->op != &kParam) continue;
    const auto& name = std::get<std::string>(node->attrs.at(0));
    auto grad = outputs.find("grad." + name);
    USER_CHECK(grad != outputs.end(), "optimizer: the graph has no output \"grad.", name,
               "\"; run autodiff before optimizer");
    list.push_back({node.get(), name, grad->second});
  }
  USER_CHECK(!list.empty(), "optimizer: the graph has no parameters");
  return list;
}

// Adds each gradient up as soon as it is there, so that it need not live to the end of the
// backward.
void accumulate_gradients(Graph& graph, std::vector<Trained>& params) {
  const std::vector<Node*> nodes = graph.nodes();
  const auto position = positions(graph);
  Node* first_backward = nullptr;
  for (size_t i = nodes.size(); i-- > 0;) {
    if (nodes[i]->phase == Phase::Backward) first_backward = nodes[i];
  }
  Value* micro = graph
                     .insert_source(first_backward, kInput, "micro", TensorType{DType::I32, {}, {}},
                                    {.name = "micro", .phase = Phase::Backward})
                     ->result();
  for (Trained& trained : params) {
    const Node* def = trained.grad->def;
    const size_t next = static_cast<size_t>(position.at(def)) + 1;
    Node* before = next < nodes.size() ? nodes[next] : nullptr;
    const std::string name = "grad." + trained.name;
    TensorType type = trained.grad->type;
    type.dtype = DType::F32;
    const NodeOptions options{.name = name, .path = def->path, .phase = Phase::Backward};
    Value* sum = graph.insert_source(before, kState, name, type, options)->result();
    Builder builder(graph, before);
    builder.set_path(def->path);
    builder.set_phase(Phase::Backward);
    trained.grad =
        builder.add(kAccumulate, {sum, trained.grad, micro}, {}, name + ".sum")->result();
  }
}

class Updater {
 public:
  Updater(Graph& graph, const Config& config) : graph_(graph), config_(config), builder_(graph) {
    builder_.set_phase(Phase::Optimizer);
  }

  void update(const std::vector<Trained>& params) {
    std::vector<Value*> grads;
    for (const Trained& trained : params) grads.push_back(trained.grad);
    Value* squares = builder_.add(kSquareSum, std::move(grads), {}, "square_sum")->result();
    Value* norm = builder_.add(kNorm, {squares}, {}, "grad_norm")->result();
    Value* count = source(kState, "adam.count", TensorType{DType::I32, {}, {}});
    clip_ = builder_.add(kClip, {norm, count}, {{"max_norm", config_.training.max_norm}}, "clip");
    lr_ = source(kInput, "lr", TensorType{DType::F32, {}, {}});
    for (const Trained& trained : params) adamw(trained);
    for (const Trained& trained : params) graph_.remove_output("grad." + trained.name);
    graph_.add_output("grad_norm", norm);
  }

 private:
  Value* source(const OpDef& op, const std::string& name, const TensorType& type) {
    const NodeOptions options{.name = name, .path = builder_.path(), .phase = Phase::Optimizer};
    return graph_.insert_source(nullptr, op, name, type, options)->result();
  }

  void adamw(const Trained& trained) {
    const OptimizerConfig& adam = config_.optimizer;
    Value* w = trained.param->result();
    builder_.set_path(trained.param->path);
    Value* m = source(kState, "m." + trained.name, w->type);
    Value* v = source(kState, "v." + trained.name, w->type);
    const double decay = w->type.shape.size() >= 2 ? adam.weight_decay : 0.0;
    builder_.add(
        kAdamw, {w, trained.grad, m, v, lr_, clip_->result(0), clip_->result(1)},
        {{"beta1", adam.beta1}, {"beta2", adam.beta2}, {"eps", adam.eps}, {"decay", decay}},
        w->name + ".new");
  }

  Graph& graph_;
  const Config& config_;
  Builder builder_;
  Node* clip_ = nullptr;
  Value* lr_ = nullptr;
};

bool run(Graph& graph, PassContext& context) {
  if (context.goal == Goal::Evaluate) {
    context.note = "no updates in evaluation";
    return false;
  }
  for (const auto& node : graph.order()) {
    USER_CHECK(node->phase != Phase::Optimizer,
               "optimizer: the graph has an update already; run optimizer once");
  }
  std::vector<Trained> params = trained_params(graph);
  const int64_t micro_batches = accumulation_steps(context.config, context.mesh.ranks());
  if (micro_batches > 1) accumulate_gradients(graph, params);
  Updater(graph, context.config).update(params);
  context.note = cat(params.size(), " parameters, ", micro_batches,
                     micro_batches == 1 ? " micro-batch" : " micro-batches");
  return true;
}

constexpr Fact kNeeds[] = {Fact::Differentiated};
constexpr Fact kGives[] = {Fact::Updated};

}  // namespace

constexpr Pass optimizer{
    .name = "optimizer",
    .doc =
        "Adds gradient accumulation when a step has several micro-batches, then the global norm, "
        "clipping and one AdamW update per parameter. Weight decay is for parameters of rank 2 "
        "and more.",
    .needs = kNeeds,
    .gives = kGives,
    .run = run,
};

}  // namespace weft

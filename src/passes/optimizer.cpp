// Turns gradients into updates: one norm over all gradients, one clip, one adamw per parameter.
// With several micro-batches per step, each gradient is first accumulated in an f32 state.
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
// With training.keep_low_precision the cast of a parameter becomes a state that the update writes:
//   %w.bf16 = cast(%w; dtype=bf16, grad="f32") : bf16[8,8]
// becomes
//   %low.w = state "low.w" : bf16[8,8]
//   %w.new, ..., %w.new.low2 = adamw_cast(%w, %grad.w.sum, %m.w, %v.w, ..., %low.w) ...
// With debug.deterministic = "elastic", results must not depend on the number of ranks. Gradients
// and loss are then summed in a binary tree, with a state for each level:
//   %grad.level0.w.sum = accumulate(%grad.level0.w, %d.w, %micro; level=0) : f32[8,8]  # bwd
//   %grad.level1.w.sum = accumulate(%grad.level1.w, %grad.level0.w.sum, %micro; level=1) ...
#include <algorithm>

#include "base/error.h"
#include "config/derived.h"
#include "graph/builder.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"
#include "passes/degrees.h"
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
  std::vector<Trained> list;
  for (const auto& node : graph.order()) {
    if (node->op != &kParam || !is_trained(*node)) continue;
    const OutputKey gradient{OutputRole::Gradient, source_name(*node)};
    Value* grad = graph.find_output(gradient);
    USER_CHECK(grad != nullptr, "optimizer: the graph has no output \"", to_string(gradient),
               "\"; run autodiff before optimizer");
    list.push_back({node.get(), source_name(*node), grad});
  }
  USER_CHECK(!list.empty(), "optimizer: the graph has no parameters");
  return list;
}

// Sums values over the micro-batches of a step: sequentially, or in a binary tree with a state for
// each level if bits must not depend on the number of micro-batches per rank.
class Accumulation {
 public:
  Accumulation(Graph& graph, const PassContext& context, int64_t micro_batches) : graph_(graph) {
    for (const auto& node : graph.order()) {
      if (node->phase != Phase::Backward) continue;
      backward_ = node.get();
      break;
    }
    const std::string name(names::kMicro);
    const NodeOptions options{.name = name, .phase = Phase::Backward};
    micro_ = graph.insert_source(backward_, kInput, name, TensorType{DType::I32, {}, {}}, options)
                 ->result();
    if (!is_elastic(context.config)) return;
    for (; int64_t{1} << levels_ < micro_batches; ++levels_) {
    }
  }

  // Accumulates each gradient right after it is computed, so that it need not live to the end of
  // the backward.
  void add_gradients(std::vector<Trained>& params) {
    const std::vector<Node*> nodes = graph_.nodes();
    const auto position = positions(graph_);
    for (Trained& trained : params) {
      const size_t next = static_cast<size_t>(position.at(trained.grad->def)) + 1;
      Node* before = next < nodes.size() ? nodes[next] : nullptr;
      trained.grad = add_up(trained.grad, before, {StateRole::GradientSum, trained.name});
    }
  }

  // Sums the loss in the same kind of tree, and what is counted of experts. Without a tree, the
  // reader of the loss sums it.
  void add_outputs() {
    if (levels_ > 0) add_output({OutputRole::Loss}, {StateRole::LossSum});
    add_output({OutputRole::ExpertCounts}, {StateRole::CountSum});
    add_output({OutputRole::LostRows}, {StateRole::LostSum});
  }

 private:
  void add_output(const OutputKey& key, const StateKey& sum) {
    Value* output = graph_.find_output(key);
    if (output == nullptr) return;
    Value* total = add_up(output, backward_, sum);
    graph_.remove_output(key);
    graph_.add_output(key, total);
  }

  // The sum is kept in the state of this key, or in one for each level.
  Value* add_up(Value* value, Node* before, StateKey sum) {
    if (levels_ == 0) return add_level(value, before, sum);
    for (sum.level = 0; sum.level < levels_; ++sum.level) value = add_level(value, before, sum);
    return value;
  }

  Value* add_level(Value* value, Node* before, const StateKey& sum) {
    const std::string name = to_string(sum);
    TensorType type = value->type;
    type.dtype = DType::F32;
    const std::string path = value->def->path;
    const NodeOptions options{.name = name, .path = path, .phase = Phase::Backward};
    Value* state = graph_.insert_source(before, kState, sum, type, options)->result();
    Builder builder(graph_, before);
    builder.set_path(path);
    builder.set_phase(Phase::Backward);
    return builder.add(kAccumulate, {state, value, micro_}, {{"level", sum.level}}, name + ".sum")
        ->result();
  }

  Graph& graph_;
  Node* backward_ = nullptr;  // its first node
  Value* micro_ = nullptr;
  int64_t levels_ = 0;  // of the tree; 0: sequential sum
};

class Updater {
 public:
  Updater(Graph& graph, const Config& config) : graph_(graph), config_(config), builder_(graph) {
    builder_.set_phase(Phase::Optimizer);
  }

  void update(const std::vector<Trained>& params) {
    std::vector<Value*> grads;
    for (const Trained& trained : params) grads.push_back(trained.grad);
    Value* squares = builder_.add(kSquareSum, std::move(grads), {}, "square_sum")->result();
    Value* scale = loss_scale();
    Value* norm = builder_.add(kNorm, with_scale({squares}, scale), {}, names::kGradNorm)->result();
    Value* lost = graph_.find_output({OutputRole::LostRows});
    if (lost != nullptr && config_.parallelism.expert_overflow == OverflowPolicy::Replay) {
      norm =
          builder_.add(kGuardNorm, {norm, lost}, {}, cat(names::kGradNorm, ".guarded"))->result();
    }
    Value* count = state({StateRole::UpdateCount}, TensorType{DType::I32, {}, {}});
    clip_ = builder_.add(kClip, with_scale({norm, count}, scale),
                         {{"max_norm", config_.training.max_norm}}, "clip");
    if (scale != nullptr) update_scale(scale, norm);
    lr_ = add_lr();
    for (const Trained& trained : params) adamw(trained);
    balance_routers();
    for (const Trained& trained : params) {
      graph_.remove_output({OutputRole::Gradient, trained.name});
    }
    graph_.add_output({OutputRole::GradientNorm}, norm);
  }

  // Number of parameters with a kept copy in the compute dtype.
  size_t kept() const { return kept_; }

 private:
  Value* add_lr() {
    const std::string name(names::kLr);
    const NodeOptions options{.name = name, .phase = Phase::Optimizer};
    return graph_.insert_source(nullptr, kInput, name, TensorType{DType::F32, {}, {}}, options)
        ->result();
  }

  Value* state(const StateKey& key, const TensorType& type) {
    const NodeOptions options{
        .name = to_string(key), .path = builder_.path(), .phase = Phase::Optimizer};
    return graph_.insert_source(nullptr, kState, key, type, options)->result();
  }

  // The scale of all gradients, or nullptr if it does not change during the run.
  Value* loss_scale() const { return find_state(graph_, {StateRole::LossScale}); }

  static std::vector<Value*> with_scale(std::vector<Value*> operands, Value* scale) {
    if (scale != nullptr) operands.push_back(scale);
    return operands;
  }

  void update_scale(Value* scale, Value* norm) {
    const GradScalerConfig& scaler = config_.grad_scaler;
    Value* good = state({StateRole::GoodSteps}, TensorType{DType::I32, {}, {}});
    builder_.add(kUpdateScale, {scale, good, norm},
                 {{"growth", scaler.growth_factor},
                  {"backoff", scaler.backoff_factor},
                  {"interval", scaler.growth_interval}},
                 cat(names::kLossScale, ".next"));
  }

  void adamw(const Trained& trained) {
    const OptimizerConfig& adam = config_.optimizer;
    Value* w = trained.param->result();
    Value* low = config_.training.keep_low_precision ? keep_cast(trained) : nullptr;
    builder_.set_path(trained.param->path);
    Value* m = state({StateRole::FirstMoment, trained.name}, w->type);
    Value* v = state({StateRole::SecondMoment, trained.name}, w->type);
    const double decay = w->type.shape.size() >= 2 ? adam.weight_decay : 0.0;
    std::vector<Value*> operands = {
        w, trained.grad, m, v, lr_, clip_->result("coefficient"), clip_->result("count2")};
    if (low != nullptr) operands.push_back(low);
    builder_.add(
        low != nullptr ? kAdamwCast : kAdamw, std::move(operands),
        {{"beta1", adam.beta1}, {"beta2", adam.beta2}, {"eps", adam.eps}, {"decay", decay}},
        w->name + ".new");
  }

  // Updates the biases of routers by the tokens of their experts.
  void balance_routers() {
    Value* counts = graph_.find_output({OutputRole::ExpertCounts});
    const double rate = config_.optimizer.expert_bias_rate;
    std::vector<Value*> operands = {counts, clip_->result("coefficient")};
    std::string first;
    for (Node* node : graph_.nodes()) {
      Value* bias = node->op == &kRouter ? node->operand("bias") : nullptr;
      if (bias == nullptr || node->phase != Phase::Forward) continue;
      if (first.empty()) first = bias->name;
      operands.push_back(bias);
    }
    if (counts == nullptr || first.empty() || rate == 0) return;
    builder_.set_path("");
    builder_.add(kBalanceRouter, std::move(operands), {{"rate", rate}}, first + ".new");
  }

  // Replaces the parameter's cast by a state for all readers; nullptr if it is not cast.
  Value* keep_cast(const Trained& trained) {
    const std::vector<Node*> users = trained.param->result()->users;
    const auto found = std::find_if(users.begin(), users.end(), [](const Node* user) {
      return user->op == &kCast && user->operand("x")->type.dtype != user->result()->type.dtype;
    });
    if (found == users.end()) return nullptr;
    Node* cast = *found;
    const StateKey key{StateRole::LowCopy, trained.name};
    const NodeOptions options{.name = to_string(key), .path = cast->path, .phase = cast->phase};
    Value* low = graph_.insert_source(cast, kState, key, cast->result()->type, options)->result();
    graph_.replace_uses(cast->result(), low);
    graph_.erase(cast);
    ++kept_;
    return low;
  }

  Graph& graph_;
  const Config& config_;
  Builder builder_;
  Node* clip_ = nullptr;
  Value* lr_ = nullptr;
  size_t kept_ = 0;
};

bool run(Graph& graph, PassContext& context) {
  if (context.goal == Goal::Evaluate) {
    context.note = "no updates in evaluation";
    return false;
  }
  for (const auto& node : graph.order()) {
    USER_CHECK(node->phase != Phase::Optimizer,
               "optimizer: the graph already has an update; run optimizer once");
  }
  std::vector<Trained> params = trained_params(graph);
  const int64_t micro_batches = accumulation_steps(context.config, degrees_of(context.mesh));
  if (micro_batches > 1) {
    Accumulation accumulation(graph, context, micro_batches);
    accumulation.add_gradients(params);
    accumulation.add_outputs();
  }
  Updater updater(graph, context.config);
  updater.update(params);
  context.note = cat(params.size(), " parameters, ", micro_batches,
                     micro_batches == 1 ? " micro-batch" : " micro-batches");
  if (updater.kept() > 0)
    context.note += cat("; ", updater.kept(), " also kept in the compute dtype");
  return true;
}

constexpr Fact kNeeds[] = {Fact::Differentiated};
constexpr Fact kGives[] = {Fact::Updated};

}  // namespace

constexpr Pass optimizer{
    .name = "optimizer",
    .doc =
        "Adds gradient accumulation if a step has several micro-batches, then the global norm, "
        "clipping and one AdamW update per parameter. Weight decay applies to parameters of rank 2 "
        "or higher. With debug.deterministic = \"elastic\", gradients and loss are summed in a "
        "binary tree. If autodiff seeded the backward with a state, norm and clip divide by that "
        "scale, and the norm updates it. With training.keep_low_precision, the casts of parameters "
        "become states that the updates write.",
    .needs = kNeeds,
    .gives = kGives,
    .run = run,
};

}  // namespace weft

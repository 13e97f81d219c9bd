// Distributes storage, based on the mesh and on the placements found by place. A parameter becomes
// flat storage of its local tensor, sharded over every axis that it is replicated on except
// dp_replicate: a weight that is sharded over tp is stored over dp_shard, a norm weight over
// dp_shard and tp. It is gathered before its first use, in the dtype of the cast it replaces; its
// gradient is reduced into the same shard, then across dp_replicate. Where there is no such axis,
// parameters stay as they are and gradients are all-reduced. With parallelism.zero_stage = 1,
// gathered weights persist and are gathered after the update. A copy that the update keeps in the
// compute dtype is sharded and gathered instead of the parameter.
//
//   %w = param "output.weight" : f32[8,16]
//   %w.bf16 = cast(%w; dtype=bf16, grad="f32") : bf16[8,16]
//   %y = matmul(%x, %w.bf16) : bf16[4,16] @S(0:dp_shard)
//   %d.w = matmul(%x, %d.y; ta=true, out="f32") : f32[8,16] @P(dp_shard)
//   %w.new, ... = adamw(%w, %d.w, %m, %v, ...) : f32[8,16], ...
// becomes
//   %w.shard = bucket ["output.weight"] : f32[1024] @F(dp_shard)
//   %w.full = all_gather(%w.shard; axis="dp_shard", types=["bf16[8,16]"]) : bf16[8,16]
//   %y = matmul(%x, %w.full) : bf16[4,16] @S(0:dp_shard)
//   %d.w = matmul(%x, %d.y; ta=true, out="f32") : f32[8,16] @P(dp_shard)
//   %d.w.shard = reduce_scatter(%d.w; axis="dp_shard") : f32[1024] @F(dp_shard)
//   %w.new, ... = adamw(%w.shard, %d.w.shard, %m, %v, ...) : f32[1024] @F(dp_shard), ...
#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "config/derived.h"
#include "graph/builder.h"
#include "graph/flat.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/sharding.h"
#include "graph/sources.h"
#include "graph/update.h"
#include "passes/degrees.h"
#include "passes/pass.h"
#include "passes/redistribution.h"

namespace weft {

namespace {

struct Mode {
  bool keep_full = false;    // the step reads full weights that persist (ZeRO-1)
  bool reduce_once = false;  // gradients are summed over micro-batches before the reduction
  bool send_bf16 = false;    // f32 gradients are rounded before the reduction
};

// A parameter with its readers, update and gradient.
struct Weight {
  Node* param = nullptr;
  std::string name;
  std::string path;            // of the first reader: its collectives belong to that module
  std::string axis;            // the axes that its flat storage is sharded over; empty: not flat
  std::vector<Node*> readers;  // in order, without the update
  Node* update = nullptr;      // nullptr: not trained by this graph
  Value* low = nullptr;        // the state that is read instead, or nullptr
  Value* grad = nullptr;       // of one micro-batch, or nullptr
  std::vector<Node*> sums;     // nodes that sum over micro-batches, in order; may be empty
};

bool takes_gradients(const Node& node) {
  return node.phase == Phase::Optimizer || node.op == &kAccumulate;
}

class Sharder {
 public:
  Sharder(Graph& graph, const Mode& mode)
      : graph_(graph), mode_(mode), position_(positions(graph)) {}

  void run() {
    std::vector<Weight> weights;  // collected first, because two may share a gradient
    for (Node* node : graph_.nodes()) {
      if (node->op == &kParam && is_trained(*node)) weights.push_back(find_weight(node));
    }
    for (const Weight& weight : weights) shard(weight);
    reduce_output({OutputRole::Loss});
    reduce_output({OutputRole::ExpertCounts});
    reduce_output({OutputRole::LostRows});
    for (Node* node : graph_.nodes()) {
      if (node->op == &kSquareSum) reduce_squares(node);
    }
  }

  size_t params() const { return params_; }
  size_t flat_params() const { return flat_params_; }
  size_t gradients() const { return gradients_; }

 private:
  Weight find_weight(Node* param) const {
    Weight weight{.param = param,
                  .name = source_name(*param),
                  .path = {},
                  .axis = storage_axis(param->result()->type),
                  .readers = {},
                  .update = update_of(*param->result()),
                  .sums = {}};
    if (weight.update != nullptr) weight.low = state_of(*weight.update, StateRole::LowCopy);
    for (Node* user : read_value(weight)->users) {
      if (user->phase != Phase::Optimizer &&
          std::find(weight.readers.begin(), weight.readers.end(), user) == weight.readers.end()) {
        weight.readers.push_back(user);
      }
    }
    std::sort(weight.readers.begin(), weight.readers.end(),
              [&](Node* a, Node* b) { return position_.at(a) < position_.at(b); });
    weight.path = weight.readers.empty() ? param->path : weight.readers[0]->path;
    weight.grad = graph_.find_output({OutputRole::Gradient, weight.name});
    if (weight.update != nullptr) {
      weight.grad = weight.update->operand("g");
      weight.sums = take_sums(weight.grad);
    }
    return weight;
  }

  // The axes that a parameter is replicated on, except dp_replicate.
  std::string storage_axis(const TensorType& type) const {
    std::vector<std::string> axes;
    for (const MeshAxis& axis : numbering_of(type.placement, graph_.mesh())) {
      if (axis.name == names::kReplicateAxis) continue;
      if (placement_over(type, axis.name) == nullptr) axes.push_back(axis.name);
    }
    return join(axes, "+");
  }

  // The value that forward and backward read.
  static Value* read_value(const Weight& weight) {
    return weight.low != nullptr ? weight.low : weight.param->result();
  }

  // The nodes that sum `value` over micro-batches; sets `value` to that of one micro-batch.
  static std::vector<Node*> take_sums(Value*& value) {
    std::vector<Node*> sums;
    for (; value->def->op == &kAccumulate; value = value->def->operand("g")) {
      sums.insert(sums.begin(), value->def);
    }
    return sums;
  }

  static std::string print_name(const Node* param) { return "%" + param->result()->name; }

  void shard(const Weight& weight) {
    if (weight.grad != nullptr) reduce_gradient(weight);
    if (!weight.axis.empty()) {
      move_storage(weight);
      ++flat_params_;
    } else if (weight.update != nullptr) {
      place_update(weight.update, weight.param->result()->type.placement);
    }
    ++params_;
  }

  void reduce_gradient(const Weight& weight) {
    if (weight.axis.empty() && !is_partial(weight.grad->type)) {
      place_sums(weight.sums, weight.grad->type);  // complete on every rank
      return;
    }
    reduce_sum(weight.grad, weight.sums,
               [&](Value* grad, Phase phase) { return reduce(grad, weight, phase); });
  }

  // The states of the update are sharded like the parameter.
  void place_update(Node* update, const Placement& placement) {
    if (placement.empty()) return;
    for (Value* operand : update->operands) {
      if (overwriting(*update, *operand) == nullptr || operand->def->op != &kState) continue;
      TensorType type = operand->type;
      type.placement = placement;
      graph_.set_type(operand, std::move(type));
    }
    graph_.retype(update);
  }

  // Reduces an output that the step sums over its micro-batches; place has reduced any other.
  void reduce_output(const OutputKey& key) {
    Value* output = graph_.find_output(key);
    if (output == nullptr || output->def->op != &kAccumulate) return;
    const std::vector<Node*> sums = take_sums(output);
    if (!is_partial(output->type)) return;
    reduce_sum(output, sums, [&](Value* value, Phase phase) {
      Node* before = graph_.next(value->def);
      return all_reduce(graph_, value, before, {.path = value->def->path, .phase = phase});
    });
  }

  // Reduces a value over the ranks in every micro-batch, or once after summing over them.
  template <class Reduce>
  void reduce_sum(Value* value, const std::vector<Node*>& sums, const Reduce& reduce) {
    if (!sums.empty() && mode_.reduce_once) {
      place_sums(sums, value->type);
      reduce(sums.back()->result(), Phase::Optimizer);
    } else {
      place_sums(sums, reduce(value, Phase::Backward)->type);
    }
  }

  // The accumulating states have the type of `values`, but in f32.
  void place_sums(const std::vector<Node*>& sums, TensorType values) {
    values.dtype = DType::F32;
    for (Node* sum : sums) {
      graph_.set_type(sum->operand("acc"), values);
      graph_.retype(sum);
    }
  }

  // The gradient summed over the ranks, for all its readers. Two parameters may share a gradient.
  Value* reduce(Value* grad, const Weight& weight, Phase phase) {
    auto found = reduced_.find(grad);
    if (found != reduced_.end()) return found->second;
    // An all_reduce overwrites its operand, so nodes that add the partial sum to another one must
    // come first.
    Node* last = grad->def;
    std::vector<Node*> others;
    for (Node* user : grad->users) {
      if (takes_gradients(*user)) continue;
      others.push_back(user);
      if (position_.at(user) > position_.at(last)) last = user;
    }
    Node* before = graph_.next(last);
    Value* reduced =
        add_reduction(grad, weight.axis, before, {.path = weight.path, .phase = phase});
    for (Node* other : others) use_again(other, reduced, grad);
    for (Node* user : reduced->users) {
      if (user->op == &kAccumulate && position_.at(user) < position_.at(last)) {
        graph_.move_before(user, before);
      }
    }
    ++gradients_;
    return reduced_[grad] = reduced;
  }

  Value* add_reduction(Value* grad, const std::string& axis, Node* before,
                       const NodeOptions& options) {
    Builder builder(graph_, before);
    builder.set_path(options.path);
    builder.set_phase(options.phase);
    if (mode_.send_bf16 && grad->type.dtype == DType::F32) {
      Node* cast = builder.add(kCast, {grad}, {{"dtype", DType::BF16}}, grad->name + ".bf16");
      graph_.replace_uses(grad, cast->result(), cast);
      grad = cast->result();
    }
    if (axis.empty()) return all_reduce(graph_, grad, before, options);
    grad = make_partial(grad, axis, builder);
    // A sum that is not sent further keeps the precision it was computed in.
    const AxisPlacement* replicate = placement_over(grad->type, names::kReplicateAxis);
    const bool widened = grad->type.dtype != DType::F32 && replicate == nullptr;
    Node* node = builder.add(kReduceScatter, {grad},
                             {{"axis", axis},
                              {"out", std::string(widened ? "f32" : "")},
                              {"shards", shards_of(grad->type, graph_.mesh())}},
                             grad->name + ".shard");
    graph_.replace_uses(grad, node->result(), node);
    if (!is_partial(node->result()->type)) return node->result();
    return all_reduce(graph_, node->result(), before, options);
  }

  // A gradient that is complete on every rank of a storage axis counts on one of them, so that the
  // sum over all storage axes is right.
  Value* make_partial(Value* grad, const std::string& axes, Builder& builder) {
    for (const std::string_view name : joint_axes(axes)) {
      if (placement_over(grad->type, name) != nullptr) continue;
      const std::string axis(name);
      Node* node = builder.add(kToPartial, {grad, coordinate_input(graph_, axis)}, {{"axis", axis}},
                               grad->name + ".once");
      graph_.replace_uses(grad, node->result(), node);
      grad = node->result();
    }
    return grad;
  }

  void use_again(Node* user, Value* from, Value* to) {
    for (size_t i = 0; i < user->operands.size(); ++i) {
      if (user->operands[i] == from) graph_.replace_operand(user, i, to);
    }
  }

  // Moves the parameter, its moments and its update to flat storage.
  void move_storage(const Weight& weight) {
    Node* param = weight.param;
    Value* w = param->result();
    const bool stored = weight.update != nullptr || !mode_.keep_full;
    Value* shard = stored ? add_bucket(weight) : nullptr;
    if (weight.update != nullptr) shard_update(weight.update, shard);
    Value* sent = weight.low != nullptr ? weight.low : shard;
    Value* full = weight.readers.empty() ? nullptr : add_full(weight, sent);
    if (weight.update != nullptr && mode_.keep_full && full != nullptr) {
      const Node* update = weight.update;
      add_gather(graph_.next(update), weight, {overwriting(*update, *sent), full}, full->type,
                 {.name = full->name + ".new", .path = weight.path, .phase = update->phase});
    }
    CHECK(w->users.empty(), print_name(param), " is still read");
    graph_.erase(param);
  }

  // Lets the update work on the shard; the states that it overwrites have the same layout.
  void shard_update(Node* update, Value* shard) {
    const std::vector<Value*> operands = update->operands;
    for (size_t i = 0; i < operands.size(); ++i) {
      Value* operand = operands[i];
      if (overwriting(*update, *operand) == nullptr) continue;
      if (operand->def->op == &kState) {
        graph_.set_type(operand, {operand->type.dtype, shard->type.shape, shard->type.placement});
      } else {
        graph_.replace_operand(update, i, shard);
      }
    }
    graph_.retype(update);
  }

  Value* add_bucket(const Weight& weight) {
    const Node* param = weight.param;
    const TensorType& type = param->result()->type;
    const TensorType flat = flat_type(type, weight.axis, graph_.mesh());
    const NodeOptions options{
        .name = param->result()->name + ".shard", .path = param->path, .phase = param->phase};
    return graph_
        .insert_source(weight.param, kBucket, std::vector<std::string>{weight.name}, flat, options)
        ->result();
  }

  // Adds the full weight that the step reads, in the dtype it is read in.
  Value* add_full(const Weight& weight, Value* sent) {
    const Value* w = weight.param->result();
    Value* read = read_value(weight);
    Node* first = weight.readers.front();
    const bool cast = are_equal_casts(weight.readers);
    const DType dtype = cast ? first->result()->type.dtype : read->type.dtype;
    const TensorType type{dtype, w->type.shape, w->type.placement};
    const NodeOptions options{
        .name = w->name + ".full", .path = first->path, .phase = first->phase};
    Value* full = nullptr;
    if (mode_.keep_full) {
      const StateKey key{StateRole::FullCopy, weight.name};
      full = graph_.insert_source(weight.param, kState, key, type, options)->result();
    } else {
      full = add_gather(first, weight, {sent}, type, options)->result();
    }
    for (Node* reader : weight.readers) {
      if (cast) {
        graph_.replace_uses(reader->result(), full);
        graph_.erase(reader);
      } else {
        use_again(reader, read, full);
      }
    }
    return full;
  }

  // Whether all readers cast the parameter to the same dtype, so that the gather can cast instead.
  static bool are_equal_casts(const std::vector<Node*>& readers) {
    return std::all_of(readers.begin(), readers.end(), [&](const Node* reader) {
      return reader->op == &kCast &&
             reader->result()->type.dtype == readers[0]->result()->type.dtype;
    });
  }

  Node* add_gather(Node* before, const Weight& weight, std::vector<Value*> operands,
                   const TensorType& type, const NodeOptions& options) {
    Builder builder(graph_, before);
    builder.set_path(options.path);
    builder.set_phase(options.phase);
    return builder.add(kAllGather, std::move(operands),
                       {{"axis", weight.axis},
                        {"types", std::vector<std::string>{to_string(type)}},
                        {"shards", shards_of(type, graph_.mesh())}},
                       options.name);
  }

  // Sums the squares over the shards. The sum is exact, so the order does not matter.
  void reduce_squares(Node* node) {
    TensorType type = node->result()->type;
    type.placement = result_placements(node->call(), graph_.mesh()).at(0);
    if (!is_partial(type)) return;
    graph_.set_type(node->result(), std::move(type));
    all_reduce(graph_, node->result(), graph_.next(node),
               {.path = node->path, .phase = node->phase});
  }

  Graph& graph_;
  const Mode mode_;
  const std::unordered_map<const Node*, int64_t> position_;
  std::unordered_map<const Value*, Value*> reduced_;
  size_t params_ = 0;
  size_t flat_params_ = 0;
  size_t gradients_ = 0;
};

Mode mode_of(const PassContext& context, const Mesh& mesh) {
  const Config& config = context.config;
  const bool flat = std::any_of(mesh.axes.begin(), mesh.axes.end(), [](const MeshAxis& axis) {
    return axis.name != names::kReplicateAxis;
  });
  const bool first_stage = config.parallelism.zero_stage == 1;
  USER_CHECK(flat || !first_stage, describe_key(config, "parallelism.zero_stage"),
             ": no ranks share the optimizer state; set parallelism.data_parallel_shard_degree");
  return {.keep_full = first_stage,
          .reduce_once = reduces_once(config, degrees_of(mesh)),
          .send_bf16 = config.training.mixed_precision_reduce == Precision::Bfloat16};
}

bool run(Graph& graph, PassContext& context) {
  if (graph.mesh().axes.empty()) {
    context.note = "one rank";
    return false;
  }
  const Mode mode = mode_of(context, graph.mesh());
  Sharder sharder(graph, mode);
  sharder.run();
  const std::string storage = mode.keep_full ? "moments are sharded, weights replicated"
                              : sharder.flat_params() > 0 ? "parameters are sharded"
                                                          : "parameters are replicated";
  context.note = cat(storage, ": ", sharder.params(), "; ", sharder.gradients(),
                     " gradients reduced", mode.reduce_once ? " once per step" : "");
  return sharder.gradients() > 0 || sharder.flat_params() > 0;
}

constexpr Fact kNeeds[] = {Fact::Placed};
constexpr Fact kGives[] = {Fact::Sharded};

}  // namespace

constexpr Pass shard_params{
    .name = "shard_params",
    .doc =
        "Distributes parameters, moments and gradients over the mesh. Over every axis on which a "
        "parameter is replicated, except dp_replicate, it and its moments become sharded flat "
        "storage: weights are gathered before their first use, and gradients are reduced into the "
        "same shards, then across dp_replicate. Without such an axis, gradients are all-reduced. "
        "With parallelism.zero_stage = 1, full weights "
        "persist and are gathered after the update. Gradients that were accumulated in f32 are "
        "cast to training.mixed_precision_reduce first.",
    .needs = kNeeds,
    .gives = kGives,
    .run = run,
};

}  // namespace weft

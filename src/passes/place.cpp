// Places every value on the mesh. The names of dims fix where a value is sharded (dim_names.h): the
// batch over the data-parallel axes; heads, ffn and vocabulary over tp, and with sequence_parallel
// the sequence of everything between the matmuls. Per axis, a node shards one dim of its sharding
// rule: that of a sharded parameter, which never moves; else that of the first result whose names
// are sharded; else, if the result is a parameter's gradient or its names leave the axis open, one
// that an operand is sharded along. Operands are gathered, reduced or sliced to match.
// A matmul with a bias, the loss and attention become other ops where a shard of what they read is
// not enough.
//
//   %tokens = input "tokens" [batch, sequence] : i32[4,8]
//   %x = embedding(%tokens, %w) : f32[4,8,16]
//   %loss, %loss.lse = cross_entropy(%x, %targets, %count) : f32[], f32[4,8]
// becomes, over dp_shard=2:
//   %tokens = input "tokens" [batch, sequence] : i32[4,8] @S(0:dp_shard)
//   %x = embedding(%tokens, %w) : f32[4,8,16] @S(0:dp_shard)
//   %loss, %loss.lse = cross_entropy(...) : f32[] @P(dp_shard), f32[4,8] @S(0:dp_shard)
//   %loss.reduced = all_reduce(%loss; axis="dp_shard") : f32[]
// and the two matmuls of a feed-forward become, over tp=2:
//   %x.full = all_gather(%x; axis="tp", dim=1) : f32[4,8,16]
//   %up = matmul(%x.full, %w1) : f32[4,8,64] @S(2:tp)
//   %down = matmul(%up, %w2) : f32[4,8,16] @P(tp)
//   %down.shard = reduce_scatter(%down; axis="tp", dim=1) : f32[4,8,16] @S(1:tp)
// For an attention over cp see share_keys.h. Ops between tokens and the rows of experts shard the
// sources of rows, and with them the tokens. With expert axes, rows and experts are placed by
// these:
//   %rows = dispatch(%x, %at; slots=32, parts=2, sources=4) : f32[4,2,32,16] @S(0:edp) @S(0:ep)
//   %rows.moved = all_to_all(%rows, %offsets; axis="ep", from=0, to=1, bounded=true) : f32[...]
//   %y = grouped_matmul(%rows.moved, %offsets.moved, %w) : f32[4,2,32,64] @S(0:edp) @S(1:ep)
#include <algorithm>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/dims.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/sharding.h"
#include "graph/sources.h"
#include "passes/degrees.h"
#include "passes/dim_names.h"
#include "passes/expert_rows.h"
#include "passes/pass.h"
#include "passes/redistribution.h"
#include "passes/share_keys.h"

namespace weft {

namespace {

// Whether the node consumes gradients, which shard_params handles.
bool is_update(const Node& node) {
  return node.phase == Phase::Optimizer || !node.op->overwrites.empty();
}

// Whether partial sums may pass through this reader, as far as its op is concerned.
bool may_pass_sums(const Node& reader) {
  return is_update(reader) || is_linear(*reader.op) || is_bilinear(reader.call());
}

class Placer {
 public:
  Placer(Graph& graph, DimNames names, ExpertRows rows, const ParallelismConfig& config)
      : graph_(graph),
        names_(std::move(names)),
        rows_(rows),
        moves_(graph),
        splits_loss_(!config.disable_loss_parallel),
        key_sharing_(graph, config.context_parallel_method == ContextMethod::Ring,
                     [this](Node* node) { place(node); }) {
    for (const auto& output : graph.outputs()) outputs_.insert(output.value);
  }

  void place_sources() {
    for (Node* node : graph_.nodes()) {
      const bool is_copy = node->op == &kState && state_key(*node).role == StateRole::LowCopy;
      if (node->op != &kInput && node->op != &kParam && !is_copy) continue;
      TensorType type = node->result()->type;
      for (const MeshAxis& axis : graph_.mesh().all_axes()) {
        const NamedPlacement named = names_.placement(*node->result(), axis.name);
        if (named.kind != NamedPlacement::Kind::Sharded) continue;
        type.placement.push_back({PlacementKind::Sharded, axis.name, named.dim});
      }
      if (type.placement.empty()) continue;
      if (node->op == &kInput) ++inputs_;
      graph_.set_type(node->result(), std::move(type));
    }
  }

  void place_nodes() {
    for (Node* node : graph_.nodes()) {
      if (node->op->traits.source || is_update(*node)) continue;
      if (node->op == &kMatmul && splits_bias(*node)) {
        split_bias(node);
      } else if (node->op == &kCrossEntropy && splits_loss(*node)) {
        split_loss(node);
      } else if (KeySharing::applies_to(*node)) {
        replace(node, key_sharing_.expand(node));
      } else {
        place(node);
      }
    }
    moves_.finish_exchanges();
  }

  std::string note() const {
    std::string text =
        cat(inputs_, inputs_ == 1 ? " input sharded, " : " inputs sharded, ", moves_.reductions(),
            moves_.reductions() == 1 ? " value reduced" : " values reduced");
    if (moves_.gathers() > 0) text += cat(", ", moves_.gathers(), " gathered");
    if (moves_.exchanges() > 0) text += cat(", ", moves_.exchanges(), " moved to another dim");
    return text;
  }

 private:
  using Kind = NamedPlacement::Kind;

  void place(Node* node) {
    names_.name_results(*node);
    rows_.resize(node);
    if (names_.has_sources(*node->result())) graph_.retype(node);
    const RuleDims dims = rule_dims(node->call());
    std::vector<std::optional<RuleDim>> chosen;
    for (const MeshAxis& axis : graph_.mesh().all_axes()) {
      chosen.push_back(choose(*node, dims, axis.name));
      for (size_t i = 0; i < dims.operands.size(); ++i) {
        if (!names_.is_placed_by(*node->operands[i], axis.name)) continue;
        prepare_operand(node, i, axis.name, chosen.back(), dims);
      }
      if (chosen.back() && chosen.back()->letter == node->op->located) locate(node, axis.name);
    }
    if (node->op == &kSplitTime || node->op == &kConcatTime) follow_shards(node);
    place_results(node, dims, chosen);
    for (const auto& value : node->results) {
      const bool is_result = node->phase == Phase::Forward && outputs_.contains(value.get());
      if (is_result && is_partial(value->type)) moves_.reduce_all(value.get());
    }
  }

  // Chunks of a sequence that tp shards are taken from every shard; chunks of what is full over tp
  // hold the same tokens.
  void follow_shards(Node* node) {
    const TensorType& type = node->operands[0]->type;
    const int64_t tokens = local_shape(type, graph_.mesh()).at(1);
    const int64_t parts = node->op == &kSplitTime ? std::get<int64_t>(node->attr("parts")) : 1;
    USER_CHECK(tokens % parts == 0, "place: ", parts, " chunks do not divide the ", tokens,
               " tokens that a rank has of %", node->operands[0]->name);
    const bool is_full = placement_over(type, names::kTensorAxis) == nullptr;
    if (!names_.shards_sequence() || !is_full) return;
    graph_.set_attr(node, "shards", graph_.mesh().axis_size(names::kTensorAxis));
  }

  // Tells the op which shard it works on: of the vocabulary or of positions by a coordinate, of
  // random numbers by a random state for that shard.
  void locate(Node* node, const std::string& axis) {
    const auto& operands = node->op->parsed().operands;
    const auto rng = std::find_if(operands.begin(), operands.end(),
                                  [](const OperandSpec& spec) { return spec.name == "rng"; });
    if (rng != operands.end()) {
      if (node->operand("rng") == nullptr) return;
      graph_.replace_operand(node, "rng", sharded_rng(node->operand("rng"), axis));
      return;
    }
    USER_CHECK(axis != names::kContextAxis, "place: %", node->result()->name, " = ",
               node->op->name(), " counts the rows of a sequence, which ", axis,
               " shards; give it an input \"", names::kPositions, "\"");
    graph_.append_operand(node, coordinate_input(graph_, axis));
    if (node->op != &kCrossEntropyGrad) return;
    graph_.set_attr(node, "classes", node->operand("logits")->type.shape.back());
  }

  // One for all readers, directly after the random state of the step.
  Value* sharded_rng(Value* rng, const std::string& axis) {
    const bool head_tail = axis == names::kContextAxis;
    for (Node* user : rng->users) {
      if (user->op == &kShardRng && std::get<bool>(user->attr("head_tail")) == head_tail) {
        return user->result();
      }
    }
    Value* coordinate = coordinate_input(graph_, axis);
    Builder builder(graph_, graph_.next(rng->def));
    return builder
        .add(kShardRng, {rng, coordinate},
             {{"shards", graph_.mesh().axis_size(axis)}, {"head_tail", head_tail}},
             cat(rng->name, ".", axis))
        ->result();
  }

  // The dim that the node shards over the axis, if any.
  std::optional<RuleDim> choose(const Node& node, const RuleDims& dims,
                                std::string_view axis) const {
    if (const RuleDim* sources = find_sources(dims)) return choose_source(*sources, axis);
    const auto allowed = [](const RuleDim& dim) -> std::optional<RuleDim> {
      return dim.may_be_sharded() ? std::optional(dim) : std::nullopt;
    };
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const AxisPlacement* entry = placement_over(node.operands[i]->type, axis);
      if (entry == nullptr || !names_.is_weight(*node.operands[i])) continue;
      return allowed(dims.operands[i].at(static_cast<size_t>(entry->dim)));
    }
    for (const auto& value : node.results) {
      const NamedPlacement named = names_.placement(*value, axis);
      if (named.kind != Kind::Sharded) continue;
      return allowed(dims.results[value->index].at(static_cast<size_t>(named.dim)));
    }
    const Value& first = *node.result();
    if (!names_.is_gradient(first) && names_.placement(first, axis).kind != Kind::Open) {
      return keep_shards(node, dims, axis);
    }
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const AxisPlacement* entry = placement_over(node.operands[i]->type, axis);
      if (entry == nullptr || entry->kind != PlacementKind::Sharded) continue;
      if (auto dim = allowed(dims.operands[i].at(static_cast<size_t>(entry->dim)))) return dim;
    }
    return {};
  }

  // The dim that all operands which have it are sharded along, if the first result has it too: what
  // needs it in full gathers the result.
  static std::optional<RuleDim> keep_shards(const Node& node, const RuleDims& dims,
                                            std::string_view axis) {
    std::optional<RuleDim> kept;
    for (const RuleDim& dim : dims.results.front()) {
      bool all = dim.may_be_sharded(), any = false;
      for (size_t i = 0; i < dims.operands.size(); ++i) {
        const int64_t at = find_dim(dims.operands[i], dim);
        const AxisPlacement* entry = placement_over(node.operands[i]->type, axis);
        const bool sharded = entry != nullptr && entry->kind == PlacementKind::Sharded;
        if (at >= 0) all &= sharded && entry->dim == at;
        any |= at >= 0;
      }
      if (all && any) kept = dim;
    }
    return kept;
  }

  // The dim that counts the ranks whose tokens are sent to experts, in an op between both.
  static const RuleDim* find_sources(const RuleDims& dims) {
    for (const auto* terms : {&dims.operands, &dims.results}) {
      for (const std::vector<RuleDim>& term : *terms) {
        for (const RuleDim& dim : term) {
          if (!dim.counted.empty()) return &dim;
        }
      }
    }
    return nullptr;
  }

  // Such an op shards the sources: over expert axes themselves, over others the batch or the
  // sequence, whose shards they count.
  std::optional<RuleDim> choose_source(const RuleDim& sources, std::string_view axis) const {
    if (graph_.mesh().is_expert_axis(axis)) return sources;
    if (!names_.divides_sources(axis)) return {};
    const bool of_batch = axis == names::kReplicateAxis || axis == names::kShardAxis;
    return RuleDim{of_batch ? sources.counted.front() : sources.counted.back()};
  }

  // Brings one operand to the placement that the node needs over the axis.
  void prepare_operand(Node* node, size_t i, const std::string& axis,
                       const std::optional<RuleDim>& chosen, const RuleDims& dims) {
    Value* value = node->operands[i];
    const int64_t dim = chosen ? find_dim(dims.operands[i], *chosen) : -1;
    const AxisPlacement* entry = placement_over(value->type, axis);
    if (entry != nullptr && entry->kind == PlacementKind::Partial) {
      if (!chosen && passes_sum(*node, i, axis)) return;
      const NamedPlacement named = names_.placement(*value, axis);
      const bool open = named.kind == Kind::Open && value->users.size() == 1 && dim >= 0;
      const bool shards = named.kind == Kind::Sharded;
      moves_.reduce(value, axis,
                    shards ? std::optional(named.dim)
                    : open ? std::optional(dim)
                           : std::nullopt);
      value = node->operands[i];
    }
    Value* moved = moves_.move(value, axis, dim < 0 ? std::nullopt : std::optional(dim), node);
    if (moved == value) return;
    names_.name_like(*moved, *value);
    graph_.replace_operand(node, i, moved);
  }

  // Whether operand i, a partial sum over the axis, stays one through this node: its result is then
  // a partial sum as well.
  bool passes_sum(const Node& node, size_t i, std::string_view axis) const {
    const Value& value = *node.operands[i];
    const auto is_sum = [&](const Value* operand) {
      const AxisPlacement* entry = placement_over(operand->type, axis);
      return entry != nullptr && entry->kind == PlacementKind::Partial;
    };
    const bool only_reader = std::all_of(value.users.begin(), value.users.end(),
                                         [&](const Node* user) { return user == &node; });
    const bool shards = names_.placement(value, axis).kind == Kind::Sharded;
    const bool all_pass = std::all_of(value.users.begin(), value.users.end(),
                                      [](const Node* user) { return may_pass_sums(*user); });
    if (is_linear(*node.op)) {
      const bool all_sums =
          std::all_of(node.operands.begin(), node.operands.end(), [&](const Value* operand) {
            return !is_floating(operand->type.dtype) || is_sum(operand);
          });
      return all_sums && (only_reader ? !shards || node.operands.size() > 1 : !shards && all_pass);
    }
    const bool others_full =
        std::all_of(node.operands.begin(), node.operands.end(), [&](const Value* operand) {
          return operand == &value || placement_over(operand->type, axis) == nullptr;
        });
    return is_bilinear(node.call()) && !shards && all_pass && others_full;
  }

  void place_results(Node* node, const RuleDims& dims,
                     const std::vector<std::optional<RuleDim>>& chosen) {
    const std::vector<MeshAxis> axes = graph_.mesh().all_axes();
    for (const auto& value : node->results) {
      TensorType type = value->type;
      type.placement.clear();
      for (size_t a = 0; a < axes.size(); ++a) {
        const std::string& axis = axes[a].name;
        if (!names_.is_placed_by(*value, axis)) continue;
        bool is_sum = false;
        for (size_t i = 0; i < dims.operands.size(); ++i) {
          const AxisPlacement* entry = placement_over(node->operands[i]->type, axis);
          is_sum |= entry != nullptr;  // sharded along another dim than the result, or a sum itself
        }
        const int64_t dim = chosen[a] ? find_dim(dims.results[value->index], *chosen[a]) : -1;
        if (dim >= 0) {
          type.placement.push_back({PlacementKind::Sharded, axis, dim});
        } else if (is_sum) {
          type.placement.push_back({PlacementKind::Partial, axis, 0});
        }
      }
      graph_.set_type(value.get(), std::move(type));
    }
  }

  // Whether the contracted dim of a matmul with a bias is sharded: every rank would add the bias.
  bool splits_bias(const Node& node) const {
    const RuleDims dims = rule_dims(node.call());
    const size_t b = node.op->parsed().operand_index("b");
    const TensorType& weight = node.operands.at(b)->type;
    return node.operand("bias") != nullptr &&
           std::any_of(weight.placement.begin(), weight.placement.end(), [&](const auto& entry) {
             return !dims.operands[b].at(static_cast<size_t>(entry.dim)).may_be_sharded();
           });
  }

  // The bias is added to the sum over the ranks instead. The result keeps its name.
  void split_bias(Node* node) {
    const std::string name = node->result()->name;
    Value* bias = node->operand("bias");
    Builder builder(graph_, node);
    builder.set_path(node->path);
    builder.set_phase(node->phase);
    Node* matmul =
        graph_.insert(node, kMatmul, {node->operand("a"), node->operand("b")}, node->attrs,
                      {.name = name + ".unbiased", .path = node->path, .phase = node->phase});
    Node* biased = builder.add(kAddBias, {matmul->result(), bias}, {}, name);
    replace(node, biased);
    place(matmul);
    place(biased);
  }

  bool splits_loss(const Node& node) const {
    const TensorType& logits = node.operand("logits")->type;
    const AxisPlacement* entry = placement_over(logits, names::kTensorAxis);
    return splits_loss_ && entry != nullptr && entry->kind == PlacementKind::Sharded &&
           entry->dim + 1 == std::ssize(logits.shape);
  }

  // Every rank reduces its part of the vocabulary to three numbers per token, which are gathered
  // instead of the logits.
  void split_loss(Node* node) {
    const std::string axis(names::kTensorAxis);
    Value* logits = node->operand("logits");
    Value* targets = node->operand("targets");
    Builder builder(graph_, node);
    builder.set_path(node->path);
    builder.set_phase(node->phase);
    Node* stats = builder.add(
        kCrossEntropyStats, {logits, targets, coordinate_input(graph_, axis)},
        {{"classes", logits->type.shape.back()}, {"shards", graph_.mesh().axis_size(axis)}},
        node->result()->name + ".stats");
    place(stats);
    const std::vector<std::string> result_names = {node->result("loss")->name,
                                                   node->result("lse")->name};
    Node* combine = builder.add(
        kCrossEntropyCombine, {stats->result(), targets, node->operand("count")}, {}, result_names);
    replace(node, combine);
    place(combine);
  }

  void replace(Node* node, Node* by) {
    std::vector<Value*> values;
    for (const auto& value : by->results) values.push_back(value.get());
    replace(node, values);
  }

  // Replaces the results of a node by values, which take over their names.
  void replace(Node* node, const std::vector<Value*>& by) {
    std::vector<std::string> result_names;
    for (const auto& value : node->results) result_names.push_back(value->name);
    for (size_t i = 0; i < result_names.size(); ++i) {
      graph_.replace_uses(node->result(i), by[i]);
    }
    if (outputs_.erase(node->result()) > 0) outputs_.insert(by[0]);
    graph_.erase(node);
    for (size_t i = 0; i < result_names.size(); ++i) graph_.rename(by[i], result_names[i]);
  }

  Graph& graph_;
  DimNames names_;
  ExpertRows rows_;
  Redistribution moves_;
  const bool splits_loss_;
  KeySharing key_sharing_;
  std::unordered_set<const Value*> outputs_;
  size_t inputs_ = 0;
};

// Whether the ranks of tensor parallelism can share the tokens of a sequence evenly.
bool shards_sequence(const PassContext& context, const Shape& tokens) {
  const Degrees degrees = degrees_of(context.mesh);
  const int64_t parts = degrees.cp * degrees.tp * context.config.training.loss_chunks;
  return degrees.tp > 1 && context.config.parallelism.sequence_parallel && tokens.size() > 1 &&
         tokens[1] % parts == 0;
}

// Ranks that share experts have equally many tokens to send.
void check_sources(const Degrees& degrees, const Shape& tokens) {
  const int64_t ranks = degrees.batch_ranks(), parts = degrees.cp * degrees.tp;
  USER_CHECK(tokens[0] % ranks == 0, "place: ", ranks, " ranks do not divide the batch of ",
             tokens[0], ", which expert parallelism needs; use a multiple of ", ranks);
  USER_CHECK(tokens.size() > 1 && tokens[1] % parts == 0, "place: cp x tp = ", parts,
             " does not divide the sequence of ", tokens.size() > 1 ? tokens[1] : 1,
             " tokens, which expert parallelism needs; use a multiple of ", parts);
}

bool run(Graph& graph, PassContext& context) {
  if (context.mesh.axes.empty()) {
    context.note = "one rank";
    return false;
  }
  USER_CHECK(graph.mesh().axes.empty(), "place: the graph is already on a mesh; run place once");
  const Value* tokens = find_input(graph, names::kTokens);
  USER_CHECK(tokens != nullptr && !tokens->type.shape.empty(), "place: the graph has no input \"",
             names::kTokens, "\" whose first dim is the batch");
  const Shape shape = tokens->type.shape;
  const int64_t ranks = degrees_of(context.mesh).batch_ranks();
  const bool divides = shape[0] % ranks == 0;
  USER_CHECK(divides || context.goal == Goal::Evaluate, "place: ", ranks,
             " ranks do not divide the batch of ", shape[0], "; use a multiple of ", ranks);
  const Degrees degrees = degrees_of(context.mesh);
  const bool shares_experts = degrees.ep > 1;
  if (shares_experts) check_sources(degrees, shape);
  graph.set_mesh(context.mesh);
  const int64_t sources = (divides ? ranks : 1) * degrees.cp * (shares_experts ? degrees.tp : 1);
  Placer placer(graph,
                DimNames(graph, shape,
                         {.shards_batch = divides,
                          .shards_sequence = shards_sequence(context, shape),
                          .shares_experts = shares_experts}),
                ExpertRows(graph, sources, degrees.ep, expert_capacity(context.config, degrees)),
                context.config.parallelism);
  placer.place_sources();
  placer.place_nodes();
  context.note =
      divides ? placer.note()
              : cat("a batch of ", shape[0], " on ", ranks, " ranks: each rank computes all of it");
  return true;
}

constexpr Fact kGives[] = {Fact::Placed};

}  // namespace

constexpr Pass place{
    .name = "place",
    .doc =
        "Places every value on the mesh: the names of dims say what is sharded over which axis, "
        "and "
        "operands are gathered, reduced or sliced where the sharding rule of an op asks for it. "
        "Gradients of parameters stay partial sums for shard_params.",
    .needs = {},
    .gives = kGives,
    .run = run,
};

}  // namespace weft

// Shards the batch over the data-parallel axes and propagates placements: activations are sharded
// like the batch; parameter gradients and the loss are partial sums. A partial sum of the forward
// that is needed in full is reduced right where it is computed, innermost axis first. Gradients on
// their way to the update are left to shard_params.
//
//   %tokens = input "tokens" : i32[4,8]
//   %x = embedding(%tokens, %w) : f32[4,8,16]
//   %loss, %loss.lse = cross_entropy(%x, %targets, %count) : f32[], f32[4,8]
// becomes, over dp_shard=2:
//   %tokens = input "tokens" : i32[4,8] @S(0:dp_shard)
//   %x = embedding(%tokens, %w) : f32[4,8,16] @S(0:dp_shard)
//   %loss, %loss.lse = cross_entropy(...) : f32[] @P(dp_shard), f32[4,8] @S(0:dp_shard)
//   %loss.reduced = all_reduce(%loss; axis="dp_shard") : f32[]
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/sharding.h"
#include "graph/sources.h"
#include "passes/pass.h"
#include "passes/reduction.h"

namespace weft {

namespace {

class Placer {
 public:
  Placer(Graph& graph, const Value& tokens) : graph_(graph), tokens_(tokens.type.shape) {
    for (const auto& output : graph.outputs()) outputs_.insert(output.value);
  }

  void shard_batch() {
    for (const auto& node : graph_.order()) {
      if (!is_batch(*node)) continue;
      TensorType type = node->result()->type;
      for (const MeshAxis& axis : graph_.mesh().axes) {
        type.placement.push_back({PlacementKind::Sharded, axis.name, 0});
      }
      graph_.set_type(node->result(), std::move(type));
      ++inputs_;
    }
  }

  void propagate() {
    for (Node* node : graph_.nodes()) {
      if (node->op->traits.source || is_update(*node)) continue;
      place_results(node);
      for (const auto& value : node->results) {
        if (!is_partial(value->type) || !is_needed_full(*value)) continue;
        all_reduce(graph_, value.get(), graph_.next(node),
                   {.path = node->path, .phase = node->phase});
        ++reductions_;
      }
    }
  }

  std::string note() const {
    return cat(inputs_, inputs_ == 1 ? " input sharded, " : " inputs sharded, ", reductions_,
               reductions_ == 1 ? " value reduced" : " values reduced");
  }

 private:
  // rng has one dim and may be as long as the batch, so the number of dims has to match as well.
  bool is_batch(const Node& node) const {
    if (node.op != &kInput) return false;
    const Shape& shape = node.result()->type.shape;
    return shape.size() >= tokens_.size() && shape[0] == tokens_[0];
  }

  // Whether the node consumes gradients, which shard_params handles.
  static bool is_update(const Node& node) {
    return node.phase == Phase::Optimizer || !node.op->overwrites.empty();
  }

  void place_results(Node* node) {
    const std::vector<Placement> placements = result_placements(node->call());
    for (const auto& value : node->results) {
      TensorType type = value->type;
      type.placement = placements.at(value->index);
      graph_.set_type(value.get(), std::move(type));
    }
  }

  bool is_needed_full(const Value& value) const {
    if (value.def->phase == Phase::Forward && outputs_.contains(&value)) return true;
    return std::any_of(value.users.begin(), value.users.end(),
                       [](const Node* user) { return !is_update(*user) && !is_linear(*user->op); });
  }

  Graph& graph_;
  const Shape tokens_;
  std::unordered_set<const Value*> outputs_;
  size_t inputs_ = 0;
  size_t reductions_ = 0;
};

bool run(Graph& graph, PassContext& context) {
  const int64_t ranks = context.mesh.ranks();
  if (context.mesh.axes.empty()) {
    context.note = "one rank";
    return false;
  }
  USER_CHECK(graph.mesh().axes.empty(), "place: the graph is already on a mesh; run place once");
  const Value* tokens = find_input(graph, names::kTokens);
  USER_CHECK(tokens != nullptr && !tokens->type.shape.empty(), "place: the graph has no input \"",
             names::kTokens, "\" whose first dim is the batch");
  const int64_t batch = tokens->type.shape[0];
  USER_CHECK(batch % ranks == 0 || context.goal == Goal::Evaluate, "place: ", ranks,
             " ranks do not divide the batch of ", batch, "; use a multiple of ", ranks);
  graph.set_mesh(context.mesh);
  Placer placer(graph, *tokens);
  if (batch % ranks == 0) placer.shard_batch();
  placer.propagate();
  context.note = batch % ranks == 0 ? placer.note()
                                    : cat("a batch of ", batch, " on ", ranks,
                                          " ranks: each rank computes all of it");
  return true;
}

constexpr Fact kGives[] = {Fact::Placed};

}  // namespace

constexpr Pass place{
    .name = "place",
    .doc =
        "Shards the batch over the mesh and propagates placements through the sharding rules of "
        "the ops; partial sums of the forward that reach an output are reduced. Gradients of "
        "parameters stay partial sums for shard_params.",
    .needs = {},
    .gives = kGives,
    .run = run,
};

}  // namespace weft

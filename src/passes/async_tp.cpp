// Computes a matmul of gathered tokens, or one whose result is reduced, in chunks of the tokens:
// while one chunk is multiplied, the next is gathered or the previous one is reduced (overlap turns
// the transfers into starts and waits). Chunk i holds the i-th part of every rank's tokens. A row
// of a matmul depends on no other row, so results stay the same; gradients of weights are sums over
// rows and read the concatenation of the chunks. Edges are chosen by price. Gathers that the
// backward repeats for such a sum move to before the previous matmul, which hides them.
//
//   %x.full = all_gather(%x; axis="tp", dim=1) : f32[4,8,16]
//   %up = matmul(%x.full, %w1) : f32[4,8,64] @S(2:tp)
// becomes, with two chunks over tp=2:
//   %x.0 = split_time(%x; index=0, parts=2) : f32[4,4,16] @S(1:tp)
//   %x.full.0 = all_gather(%x.0; axis="tp", dim=1) : f32[4,4,16]
//   %x.1 = ...
//   %up.0 = matmul(%x.full.0, %w1) : f32[4,4,64] @S(2:tp)
//   %up.1 = matmul(%x.full.1, %w1) : f32[4,4,64] @S(2:tp)
//   %up = concat_time(%up.0, %up.1; shards=2) : f32[4,8,64] @S(2:tp)
#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "base/text.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/text.h"
#include "passes/async_tp_edges.h"
#include "passes/overlap_schedule.h"

namespace weft {

namespace {

class Chunker {
 public:
  Chunker(Graph& graph, const AsyncEdge& edge, int64_t chunks)
      : graph_(graph),
        edge_(edge),
        chunks_(chunks),
        ranks_(graph.mesh().axis_size(names::kTensorAxis)) {}

  void run() {
    if (edge_.gathers()) {
      gather();
    } else {
      scatter();
    }
  }

 private:
  void gather() {
    Node* collective = edge_.collective;
    Value* x = collective->operand("x");
    Value* full = collective->result();
    std::vector<Value*> gathered;
    for (int64_t i = 0; i < chunks_; ++i) {
      gathered.push_back(copy(*collective, split(x, i, kOneShard, collective), i, collective));
    }
    std::vector<Value*> parts;
    for (int64_t i = 0; i < chunks_; ++i) {
      parts.push_back(copy(*edge_.matmul, gathered[static_cast<size_t>(i)], i, edge_.matmul));
    }
    concat(parts, ranks_, edge_.matmul, graph_.next(edge_.matmul));
    if (!full->users.empty()) {
      concat(gathered, ranks_, collective, first_reader(*full, collective));
    } else {
      graph_.erase(collective);
    }
  }

  void scatter() {
    Node* before = edge_.matmul;
    Value* a = edge_.matmul->operand("a");
    std::vector<Value*> parts;
    for (int64_t i = 0; i < chunks_; ++i) {
      Value* sum = copy(*edge_.matmul, split(a, i, ranks_, before), i, before);
      parts.push_back(copy(*edge_.collective, sum, i, before));
    }
    concat(parts, kOneShard, edge_.collective,
           first_reader(*edge_.collective->result(), edge_.collective));
    graph_.erase(edge_.matmul);
  }

  // Chunk i of a value: of a rank's shard, or of all shards of a full value.
  Value* split(Value* x, int64_t index, int64_t shards, Node* before) {
    Node* node = graph_.insert(before, kSplitTime, {x}, {Attr(index), Attr(chunks_), Attr(shards)},
                               options(*before, cat(x->name, ".", index)));
    node->recomputed = before->recomputed;
    return node->result();
  }

  // The node on one chunk of its first operand.
  Value* copy(const Node& node, Value* first, int64_t index, Node* before) {
    std::vector<Value*> operands = node.operands;
    operands.front() = first;
    Node* made = graph_.insert(before, *node.op, std::move(operands), node.attrs,
                               options(node, cat(node.result()->name, ".", index)));
    made->recomputed = node.recomputed;
    graph_.set_type(made->result(), chunk_type(node.result()->type, chunks_));
    return made->result();
  }

  // Replaces the result of the node by the concatenation of its chunks, which takes its name.
  void concat(const std::vector<Value*>& parts, int64_t shards, Node* node, Node* before) {
    const std::string name = node->result()->name;
    Node* made =
        graph_.insert(before, kConcatTime, parts, {Attr(shards)}, options(*node, name + ".chunks"));
    made->recomputed = node->recomputed;
    graph_.replace_uses(node->result(), made->result());
    graph_.erase(node);
    graph_.rename(made->result(), name);
  }

  // The first reader at or after `from`.
  Node* first_reader(const Value& value, Node* from) const {
    const auto reads = [&](Node* node) {
      return std::find(value.users.begin(), value.users.end(), node) != value.users.end();
    };
    while (from != nullptr && !reads(from)) from = graph_.next(from);
    return from;
  }

  static NodeOptions options(const Node& of, std::string name) {
    return {.name = std::move(name), .path = of.path, .phase = of.phase};
  }

  static constexpr int64_t kOneShard = 1;

  Graph& graph_;
  const AsyncEdge edge_;
  const int64_t chunks_;
  const int64_t ranks_;
};

// The nodes after `from`, up to and including `to`, that `to` depends on.
std::vector<Node*> ancestors_after(const Node* from, Node* to,
                                   const std::unordered_map<const Node*, int64_t>& position) {
  std::vector<Node*> found = {to};
  for (size_t i = 0; i < found.size(); ++i) {
    for (const Value* operand : found[i]->operands) {
      Node* def = operand->def;
      const bool is_after = position.at(def) > position.at(from);
      if (is_after && std::find(found.begin(), found.end(), def) == found.end()) {
        found.push_back(def);
      }
    }
  }
  std::sort(found.begin(), found.end(),
            [&](const Node* a, const Node* b) { return position.at(a) < position.at(b); });
  return found;
}

// Moves gathers that are repeated for the gradient of a weight, with what they are computed from,
// to before the matmul whose result is reduced: that matmul then hides the gather, and the gradient
// of the weight the reduction. Returns their number.
size_t lift_repeated_gathers(Graph& graph) {
  const auto position = positions(graph);
  size_t lifted = 0;
  std::unordered_map<const Node*, Node*> reduced;  // by reduction
  for (const AsyncEdge& edge : find_async_edges(graph)) {
    if (!edge.gathers()) reduced[edge.collective] = edge.matmul;
  }
  Node* matmul = nullptr;  // the last one whose result is reduced, unless it hides a gather already
  for (Node* node : graph.nodes()) {
    const auto found = reduced.find(node);
    if (found != reduced.end()) matmul = found->second;
    if (matmul == nullptr || !node->recomputed || !gathers_tokens(*node)) continue;
    const std::vector<Node*> moved = ancestors_after(matmul, node, position);
    const bool depends = std::any_of(moved.begin(), moved.end(), [&](const Node* ancestor) {
      return std::any_of(ancestor->operands.begin(), ancestor->operands.end(),
                         [&](const Value* operand) { return operand->def == matmul; });
    });
    if (depends) continue;
    for (Node* ancestor : moved) graph.move_before(ancestor, matmul);
    matmul = nullptr;
    ++lifted;
  }
  return lifted;
}

// What the pass does to a graph.
struct Changes {
  size_t lifted = 0;            // repeated gathers that are earlier
  std::vector<int64_t> chunks;  // of each edge; 1: it stays as it is

  size_t chunked() const {
    return chunks.size() -
           static_cast<size_t>(std::count(chunks.begin(), chunks.end(), int64_t{1}));
  }
  bool any() const { return lifted + chunked() > 0; }
};

Changes change(Graph& graph, const PassContext& context) {
  Changes changes;
  if (context.config.compile.overlap) changes.lifted = lift_repeated_gathers(graph);
  const std::vector<AsyncEdge> edges = find_async_edges(graph);
  const int64_t wanted = context.config.parallelism.async_tensor_parallel_chunks;
  if (wanted < 0) {
    changes.chunks = cheapest_chunks(graph, edges, context.device);
  } else {
    for (const AsyncEdge& edge : edges) {
      changes.chunks.push_back(divides_into(edge, graph.mesh(), wanted) ? wanted : 1);
    }
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    if (changes.chunks[i] > 1) Chunker(graph, edges[i], changes.chunks[i]).run();
  }
  return changes;
}

// The step with its collectives overlapped, as overlap will do it.
StepEstimate estimate_of(Graph graph, const PassContext& context) {
  if (!context.config.compile.overlap) return estimate_order(graph, graph.nodes(), context);
  split_collectives(graph);
  return estimate_order(graph, choose_schedule(graph, context).order, context);
}

Graph copy_of(const Graph& graph) {
  return parse_graph(print_graph(graph));
}

// Whether the change needs memory that the device does not have.
bool is_too_large(const StepEstimate& before, const StepEstimate& after, const DeviceSpec& device) {
  return device.memory_bytes > 0 && after.peak_bytes > before.peak_bytes &&
         after.persistent_bytes + after.peak_bytes > device.memory_bytes;
}

// "-3.4%".
std::string change_text(double before, double after) {
  char text[32];
  std::snprintf(text, sizeof(text), "%+.1f%%", (after / before - 1) * 100);
  return text;
}

bool run(Graph& graph, PassContext& context) {
  const ParallelismConfig& parallelism = context.config.parallelism;
  if (!parallelism.enable_async_tensor_parallel) {
    context.note = "parallelism.enable_async_tensor_parallel is false";
    return false;
  }
  if (find_async_edges(graph).empty()) {
    context.note = "no tokens are gathered or reduced next to a matmul";
    return false;
  }
  const bool by_price = parallelism.async_tensor_parallel_chunks < 0;
  if (by_price && !context.config.compile.overlap) {
    context.note = "compile.overlap is false: nothing would be hidden";
    return false;
  }
  Graph changed = copy_of(graph);
  const Changes changes = change(changed, context);
  if (!changes.any()) {
    context.note = cat("none of ", changes.chunks.size(), " edges gains from chunks");
    return false;
  }
  const StepEstimate before = estimate_of(copy_of(graph), context);
  const StepEstimate after = estimate_of(std::move(changed), context);
  const bool too_large = is_too_large(before, after, context.device);
  if (by_price && (too_large || after.time.seconds >= before.time.seconds)) {
    context.note = cat(
        changes.chunked(), " of ", changes.chunks.size(), " edges would gain from chunks, but ",
        too_large ? "not enough memory on " + context.device.name : "the step would not be faster");
    return false;
  }
  change(graph, context);
  context.note = cat(changes.chunked(), " of ", changes.chunks.size(), " edges in chunks, ",
                     changes.lifted, " repeated gathers earlier, predicted step time ",
                     change_text(before.time.seconds, after.time.seconds));
  return true;
}

}  // namespace

constexpr Pass async_tp{
    .name = "async_tp",
    .doc =
        "Computes a matmul of gathered tokens, or one whose result is reduced, in chunks of the "
        "tokens, where sending one chunk while another is multiplied is predicted to gain. The "
        "results of a matmul's rows do not change.",
    .needs = {},
    .gives = {},
    .run = run,
};

}  // namespace weft

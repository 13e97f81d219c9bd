// The price of an edge is a small timeline: copies and matmuls on the compute stream, transfers on
// the stream of activations, and the compute around the edge that could hide a transfer anyway.
#include "passes/async_tp_edges.h"

#include <algorithm>

#include "graph/clocks.h"
#include "graph/comm_cost.h"
#include "graph/names.h"
#include "graph/ops/ops.h"

namespace weft {

namespace {

constexpr size_t kTime = 1;
constexpr int64_t kMostChunks = 8;
// Chunks must gain more than the error of the estimate.
constexpr double kWorthwhile = 0.95;

bool moves_time(const Node& node, const OpDef& op) {
  return node.op == &op && !is_flat_collective(node) &&
         std::get<std::string>(node.attr("axis")) == names::kTensorAxis &&
         std::get<int64_t>(node.attr("dim")) == static_cast<int64_t>(kTime) &&
         node.result()->type.shape.size() > kTime + 1;
}

// Whether each row of the result depends on one row of the first operand.
bool multiplies_rows(const Node& node) {
  return node.op == &kMatmul && !std::get<bool>(node.attr("ta"));
}

Node* first_reader(const Value& value, const std::unordered_map<const Node*, int64_t>& position) {
  const auto first = std::min_element(
      value.users.begin(), value.users.end(),
      [&](const Node* a, const Node* b) { return position.at(a) < position.at(b); });
  return first == value.users.end() ? nullptr : *first;
}

// Seconds of the compute next to the collective that can hide it without chunks, at most as many as
// it takes: before a gather, after a reduction.
double hidden_nearby(const Graph& graph, std::span<Node* const> order, size_t own, double seconds,
                     const DeviceSpec& device) {
  const Node& collective = *order[own];
  const std::vector<Node*>& readers = collective.result()->users;
  double hidden = 0;
  // Whether the walk goes on after this node.
  const auto pass = [&](const Node* node) {
    if (node == collective.operands.front()->def) return false;
    if (std::find(readers.begin(), readers.end(), node) != readers.end()) return false;
    const OpTraits& traits = node->op->traits;
    if (!traits.source && !traits.collective) {
      hidden += local_seconds(node->call(), graph.mesh(), device);
    }
    return hidden < seconds;
  };
  if (is_gather(*collective.op)) {
    for (size_t at = own; at > 0 && pass(order[at - 1]);) --at;
  } else {
    for (size_t at = own + 1; at < order.size() && pass(order[at]);) ++at;
  }
  return std::min(hidden, seconds);
}

// A call on one chunk: of its first operand and of its results.
Call chunk_call(Call call, int64_t chunks) {
  call.operands.front() = chunk_type(call.operands.front(), chunks);
  for (TensorType& type : call.results) type = chunk_type(type, chunks);
  return call;
}

class EdgeTimes {
 public:
  EdgeTimes(const AsyncEdge& edge, const Mesh& mesh, const DeviceSpec& device)
      : edge_(edge), mesh_(mesh), device_(device) {}

  double collective() const { return of(edge_.collective->call()); }

  // From the operand of the edge to its result, if compute of `nearby` seconds hides a part. That
  // after a reduction is included.
  double unchunked(double nearby) const {
    return of(edge_.matmul->call()) + collective() - (edge_.gathers() ? nearby : 0);
  }
  double chunked(int64_t chunks, double nearby) const {
    return edge_.gathers() ? gather_in_chunks(chunks) : scatter_in_chunks(chunks, nearby);
  }

 private:
  // All gathers start at once; each chunk of the matmul waits for its own.
  double gather_in_chunks(int64_t chunks) const {
    Clocks clocks;
    const double split = of_split(edge_.collective->operand("x")->type, chunks);
    const double gather = of(chunk_call(edge_.collective->call(), chunks));
    const double matmul = of(chunk_call(edge_.matmul->call(), chunks));
    std::vector<double> gathered;
    for (int64_t i = 0; i < chunks; ++i) {
      clocks.run({.seconds = split});
      gathered.push_back(transfer(clocks, gather));
    }
    for (const double end : gathered) clocks.run({.ready = end, .seconds = matmul});
    clocks.run({.seconds = of_concat(edge_.matmul->result()->type, chunks)});
    const Value& full = *edge_.collective->result();
    if (full.users.size() > 1) clocks.run({.seconds = of_concat(full.type, chunks)});
    return clocks.time().seconds;
  }

  // The compute that follows does not read the result.
  double scatter_in_chunks(int64_t chunks, double nearby) const {
    Clocks clocks;
    const double split = of_split(edge_.matmul->operand("a")->type, chunks);
    const double matmul = of(chunk_call(edge_.matmul->call(), chunks));
    const double scatter = of(chunk_call(edge_.collective->call(), chunks));
    double scattered = 0;
    for (int64_t i = 0; i < chunks; ++i) {
      clocks.run({.seconds = split + matmul});
      scattered = transfer(clocks, scatter);
    }
    clocks.run({.seconds = nearby});
    clocks.run(
        {.ready = scattered, .seconds = of_concat(edge_.collective->result()->type, chunks)});
    return clocks.time().seconds;
  }

  double of(const Call& call) const { return local_seconds(call, mesh_, device_); }

  double of_split(const TensorType& type, int64_t chunks) const {
    return of({&kSplitTime, {type}, {chunk_type(type, chunks)}, {}});
  }

  double of_concat(const TensorType& type, int64_t chunks) const {
    const std::vector<TensorType> parts(static_cast<size_t>(chunks), chunk_type(type, chunks));
    return of({&kConcatTime, parts, {type}, {}});
  }

  static double transfer(Clocks& clocks, double seconds) {
    return clocks.run({.stream = index_of(StreamId::Activation),
                       .axis = names::kTensorAxis,
                       .ready = clocks.end_of(index_of(StreamId::Compute)),
                       .seconds = seconds});
  }

  const AsyncEdge& edge_;
  const Mesh& mesh_;
  const DeviceSpec& device_;
};

// Powers of two, as far as they divide the tokens.
int64_t most_chunks(const AsyncEdge& edge, const Mesh& mesh) {
  int64_t chunks = 1;
  while (chunks < kMostChunks && divides_into(edge, mesh, 2 * chunks)) chunks *= 2;
  return chunks;
}

int64_t cheapest_of(const EdgeTimes& times, double nearby, int64_t most) {
  double best_seconds = times.unchunked(nearby);
  int64_t best = 1;
  for (int64_t chunks = 2; chunks <= most; chunks *= 2) {
    const double seconds = times.chunked(chunks, nearby);
    if (seconds >= kWorthwhile * best_seconds) continue;
    best = chunks;
    best_seconds = seconds;
  }
  return best;
}

}  // namespace

bool AsyncEdge::gathers() const {
  return is_gather(*collective->op);
}

TensorType chunk_type(TensorType type, int64_t chunks) {
  type.shape.at(kTime) /= chunks;
  return type;
}

bool gathers_tokens(const Node& node) {
  return moves_time(node, kAllGather);
}

std::vector<AsyncEdge> find_async_edges(const Graph& graph) {
  const auto position = positions(graph);
  std::vector<AsyncEdge> edges;
  for (const auto& node : graph.order()) {
    if (gathers_tokens(*node)) {
      Node* reader = first_reader(*node->result(), position);
      const bool fits =
          reader != nullptr && multiplies_rows(*reader) && reader->operand("a") == node->result();
      if (fits) edges.push_back({node.get(), reader});
    } else if (moves_time(*node, kReduceScatter)) {
      const Value& sum = *node->variadic("g").front();
      if (sum.users.size() == 1 && multiplies_rows(*sum.def))
        edges.push_back({node.get(), sum.def});
    }
  }
  return edges;
}

bool divides_into(const AsyncEdge& edge, const Mesh& mesh, int64_t chunks) {
  const Value& shard = edge.gathers() ? *edge.collective->operand("x") : *edge.collective->result();
  return local_shape(shard.type, mesh).at(kTime) % chunks == 0;
}

std::vector<int64_t> cheapest_chunks(const Graph& graph, std::span<const AsyncEdge> edges,
                                     const DeviceSpec& device) {
  const std::vector<Node*> order = graph.nodes();
  const auto position = positions(graph);
  std::vector<int64_t> chosen;
  for (const AsyncEdge& edge : edges) {
    const EdgeTimes times(edge, graph.mesh(), device);
    const auto own = static_cast<size_t>(position.at(edge.collective));
    chosen.push_back(cheapest_of(times,
                                 hidden_nearby(graph, order, own, times.collective(), device),
                                 most_chunks(edge, graph.mesh())));
  }
  return chosen;
}

}  // namespace weft

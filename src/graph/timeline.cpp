// Two walks over the order: one advances the clocks, one tracks the lifetime of every buffer.
#include "graph/timeline.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "graph/comm_cost.h"
#include "graph/micro_nodes.h"
#include "graph/ops/ops.h"

namespace weft {

namespace {

struct TimedNode {
  const Node* node = nullptr;
  double seconds = 0;
};

// The axis of a collective; empty for other ops.
std::string_view axis_of(const Node& node) {
  if (node.op->collective == nullptr) return {};
  return std::get<std::string>(node.attr("axis"));
}

// A started collective begins when the compute before it is done, including everything that compute
// waited for.
PlanTime program_time(std::span<const TimedNode> nodes) {
  constexpr int64_t kCompute = index_of(StreamId::Compute);
  Clocks clocks;
  double waited = 0;
  std::unordered_map<const Node*, double> ends;  // by start
  for (const auto& [node, seconds] : nodes) {
    if (node->op == &kWait) {
      for (const Value* future : node->operands) waited = std::max(waited, ends.at(future->def));
      continue;
    }
    const double end = clocks.run({.stream = index_of(stream_of(*node)),
                                   .axis = axis_of(*node),
                                   .ready = std::max(waited, clocks.end_of(kCompute)),
                                   .seconds = seconds});
    if (is_start(*node->op)) ends[node] = end;
  }
  return clocks.time();
}

PlanTime time_of(const Graph& graph, std::span<Node* const> order, const DeviceSpec& device,
                 int64_t micro_batches) {
  std::vector<TimedNode> nodes;
  for (const Node* node : order) {
    if (node->op->traits.source) continue;
    nodes.push_back({node, local_seconds(node->call(), graph.mesh(), device)});
  }
  const PlanTime last = program_time(nodes);
  if (micro_batches == 1) return last;
  const std::vector<Node*> kept = micro_nodes(graph, order);
  const std::unordered_set<const Node*> in_micro(kept.begin(), kept.end());
  std::erase_if(nodes, [&](const TimedNode& timed) { return !in_micro.contains(timed.node); });
  return step_time(program_time(nodes), last, micro_batches);
}

// Lifetimes of values, as positions in the order.
class Lifetimes {
 public:
  Lifetimes(const Graph& graph, std::span<Node* const> order) : graph_(graph) {
    for (const Node* node : order) {
      read(*node);
      define(*node);
      ++now_;
    }
    for (const auto& output : graph.outputs()) buffer_of(output.value).end = now_;
  }

  MemoryCurve curve() const {
    MemoryCurve curve;
    std::vector<int64_t> change(static_cast<size_t>(now_) + 2, 0);
    for (const Buffer& buffer : buffers_) {
      if (buffer.persistent) {
        curve.persistent_bytes += buffer.bytes;
        continue;
      }
      change[static_cast<size_t>(buffer.begin)] += buffer.bytes;
      change[static_cast<size_t>(buffer.end) + 1] -= buffer.bytes;
    }
    std::partial_sum(change.begin(), change.end() - 1, std::back_inserter(curve.live_bytes));
    return curve;
  }

 private:
  struct Buffer {
    int64_t bytes = 0;
    int64_t begin = 0;
    int64_t end = 0;
    bool persistent = false;
  };

  Buffer& buffer_of(const Value* value) { return buffers_[index_.at(value)]; }

  void read(const Node& node) {
    for (const Value* operand : node.operands) buffer_of(operand).end = now_;
    if (node.op == &kWait) {
      // The collective may read its operands until here.
      for (const Value* operand : node.variadic("f").front()->def->operands) {
        buffer_of(operand).end = now_;
      }
    }
    if (!is_reduction(*node.op)) return;
    // Operands share one buffer, which is live from its first operand to its last.
    int64_t begin = now_;
    for (const Value* operand : node.operands) begin = std::min(begin, buffer_of(operand).begin);
    for (const Value* operand : node.operands) buffer_of(operand).begin = begin;
  }

  void define(const Node& node) {
    const std::vector<int> over = overwritten_operands(node.call());
    for (size_t i = 0; i < node.results.size(); ++i) {
      const Value* value = node.result(i);
      if (over[i] >= 0) {
        index_[value] = index_.at(node.operands.at(static_cast<size_t>(over[i])));
        continue;
      }
      if (is_gather(*node.op) && i > 0) {
        index_[value] = index_.at(node.result(0));
        buffer_of(value).bytes += local_bytes(value->type, graph_.mesh());
        continue;
      }
      index_[value] = buffers_.size();
      buffers_.push_back({.bytes = local_bytes(value->type, graph_.mesh()),
                          .begin = now_,
                          .end = now_,
                          .persistent = node.op->traits.source});
    }
  }

  const Graph& graph_;
  std::vector<Buffer> buffers_;
  std::unordered_map<const Value*, size_t> index_;
  int64_t now_ = 0;
};

}  // namespace

MemoryCurve memory_curve(const Graph& graph, std::span<Node* const> order) {
  return Lifetimes(graph, order).curve();
}

StepEstimate estimate_step(const Graph& graph, std::span<Node* const> order,
                           const DeviceSpec& device, int64_t micro_batches) {
  StepEstimate estimate;
  estimate.time = time_of(graph, order, device, micro_batches);
  const MemoryCurve memory = memory_curve(graph, order);
  estimate.persistent_bytes = memory.persistent_bytes;
  estimate.peak_bytes = memory.peak_bytes();
  return estimate;
}

}  // namespace weft

// Two walks over the order: one with a clock per stream, one with the lifetime of every buffer.
#include "graph/timeline.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <unordered_map>

#include "graph/comm_cost.h"
#include "graph/ops/ops.h"

namespace weft {

namespace {

void run_clocks(const Graph& graph, std::span<Node* const> order, const DeviceSpec& device,
                StepEstimate& estimate) {
  double now = 0;
  double gather_free = 0;
  double reduce_free = 0;
  std::unordered_map<const Node*, double> done;
  for (const Node* node : order) {
    if (node->op == &kWait) {
      now = std::max(now, done.at(node->operands.at(0)->def));
      continue;
    }
    const double seconds = local_seconds(node->call(), graph.mesh(), device);
    const bool gather = is_gather(*node->op);
    if (!gather && !is_reduction(*node->op)) {
      estimate.compute_seconds += seconds;
      now += seconds;
      continue;
    }
    estimate.collective_seconds += seconds;
    double& free = gather ? gather_free : reduce_free;
    free = std::max(free, now) + seconds;
    if (is_start(*node->op)) {
      done[node] = free;
    } else {
      now = free;
    }
  }
  estimate.seconds = std::max({now, gather_free, reduce_free});
}

// Lifetimes by position in the order.
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
      for (const Value* operand : node.operands.at(0)->def->operands) {
        buffer_of(operand).end = now_;
      }
    }
    if (!is_reduction(*node.op)) return;
    // Operands are parts of one buffer, there from the first to the last.
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
                           const DeviceSpec& device) {
  StepEstimate estimate;
  run_clocks(graph, order, device, estimate);
  const MemoryCurve memory = memory_curve(graph, order);
  estimate.persistent_bytes = memory.persistent_bytes;
  estimate.peak_bytes = memory.peak_bytes();
  return estimate;
}

}  // namespace weft

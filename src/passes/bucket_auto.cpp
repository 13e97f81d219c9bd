// Merges and schedules each candidate on a copy of the graph, so that the comparison is between the
// steps that would actually run.
#include "passes/bucket_auto.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/text.h"
#include "graph/comm_cost.h"
#include "graph/ops/ops.h"
#include "graph/text.h"
#include "passes/bucket_gathers.h"
#include "passes/bucket_merge.h"
#include "passes/overlap_schedule.h"

namespace weft {

namespace {

// Largest share of all parameters in one bucket.
constexpr double kLargestShare = 0.2;

// Plans with times within this factor count as equally fast, because estimates are no more
// accurate; the one that needs less memory wins.
constexpr double kAsFast = 1.01;

// A lane as the greedy plan sees it.
struct Unit {
  size_t lane = 0;
  const Node* collective = nullptr;  // to be hidden by the compute before it
  double compute = 0;                // seconds until the collective of the next unit
  double bytes = 0;                  // moved by the collective
  double elements = 0;
};

const Node* first_gather(const ParamLane& lane,
                         const std::unordered_map<const Node*, int64_t>& position) {
  const Node* first = nullptr;
  for (const auto& [role, node] : lane.gathers) {
    if (first == nullptr || position.at(node) < position.at(first)) first = node;
  }
  return first;
}

const Node* first_reduction(const ParamLane& lane) {
  for (const auto& [role, node] : lane.nodes) {
    if (is_reduction(*node->op)) return node;
  }
  return nullptr;
}

// Lanes in the order of their collectives, with the compute time between them.
std::vector<Unit> find_units(const Graph& graph, const std::vector<ParamLane>& lanes,
                             const DeviceSpec& device) {
  const auto position = positions(graph);
  std::vector<Unit> units;
  for (size_t i = 0; i < lanes.size(); ++i) {
    const Node* gather = first_gather(lanes[i], position);
    const Node* node = gather != nullptr ? gather : first_reduction(lanes[i]);
    if (node == nullptr) continue;
    units.push_back({.lane = i,
                     .collective = node,
                     .compute = 0,
                     .bytes = collective_bytes(node->call(), graph.mesh()),
                     .elements = static_cast<double>(lanes[i].item.elements)});
  }
  std::sort(units.begin(), units.end(), [&](const Unit& a, const Unit& b) {
    return position.at(a.collective) < position.at(b.collective);
  });
  size_t next = 0;
  for (const auto& node : graph.order()) {
    if (next < units.size() && units[next].collective == node.get()) ++next;
    const bool counts = next > 0 && node->phase == units[next - 1].collective->phase;
    if (!counts || node->op->traits.collective) continue;
    units[next - 1].compute += local_seconds(node->call(), graph.mesh(), device);
  }
  return units;
}

// The bucket being filled.
struct Open {
  std::vector<size_t> lanes;
  double bytes = 0;
  double elements = 0;
  double compute = 0;
};

double headroom_of(const Graph& graph, const DeviceSpec& device) {
  if (device.memory_bytes == 0) return std::numeric_limits<double>::infinity();
  const MemoryCurve memory = memory_curve(graph, graph.nodes());
  return static_cast<double>(device.memory_bytes - memory.persistent_bytes - memory.peak_bytes());
}

struct Candidate {
  std::string name;
  BucketPlan plan;
  StepEstimate estimate = {};
  bool fits = true;
};

void evaluate(Candidate& candidate, const Graph& graph, const PassContext& context) {
  Graph copy = parse_graph(print_graph(graph));
  merge_lanes(copy, find_lanes(copy), candidate.plan);
  if (context.config.parallelism.fsdp_reshard_after_forward == ReshardPolicy::Default) {
    reuse_fresh_gathers(copy);
  }
  std::vector<Node*> order;
  if (context.config.compile.overlap) {
    split_collectives(copy);
    order = choose_schedule(copy, context).order;
  } else {
    order = copy.nodes();
  }
  candidate.estimate = estimate_order(copy, order, context);
  const int64_t bytes = candidate.estimate.persistent_bytes + candidate.estimate.peak_bytes;
  candidate.fits = context.device.memory_bytes == 0 || bytes <= context.device.memory_bytes;
}

// Of the candidates that fit and are about as fast as the fastest, the one with the smallest peak;
// if none fits, the one with the smallest peak.
Candidate& best_of(std::vector<Candidate>& candidates) {
  const bool any_fits = std::any_of(candidates.begin(), candidates.end(),
                                    [](const Candidate& candidate) { return candidate.fits; });
  double fastest = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) {
    if (candidate.fits) fastest = std::min(fastest, candidate.estimate.time.seconds);
  }
  Candidate* best = nullptr;
  for (Candidate& candidate : candidates) {
    if (candidate.fits != any_fits) continue;
    if (any_fits && candidate.estimate.time.seconds > kAsFast * fastest) continue;
    if (best == nullptr || candidate.estimate.peak_bytes < best->estimate.peak_bytes) {
      best = &candidate;
    }
  }
  return *best;
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", 1e3 * seconds);
  return text;
}

}  // namespace

BucketPlan plan_greedily(const Graph& graph, const std::vector<ParamLane>& lanes,
                         const DeviceSpec& device) {
  const double headroom = headroom_of(graph, device);
  const std::vector<Unit> units = find_units(graph, lanes, device);
  double total = 0;
  for (const Unit& unit : units) total += unit.elements;
  BucketPlan plan;
  Open open;
  double hiding = 0;   // compute seconds of the previous bucket
  double reduced = 0;  // elements of the previous bucket
  const auto close = [&] {
    std::sort(open.lanes.begin(), open.lanes.end());
    plan.groups.push_back(open.lanes);
    hiding = open.compute;
    reduced = open.elements;
    open = {};
  };
  for (const Unit& unit : units) {
    const auto& axis = std::get<std::string>(unit.collective->attr("axis"));
    const Link link = axis_link(graph.mesh(), axis, device);
    const double bytes = open.bytes + unit.bytes;
    const double elements = open.elements + unit.elements;
    const double gradient_bytes = 4 * elements;
    const double seconds = link.gather_latency + bytes / link.gather_bandwidth +
                           (reduced == 0 ? 0 : link.scatter_latency) +
                           4 * reduced / link.scatter_bandwidth;
    const bool over_time = seconds > hiding;
    const bool over_memory = 2 * bytes + 2 * gradient_bytes > headroom;
    const bool over_size = elements > kLargestShare * total;
    if (open.compute > 0 && (over_time || over_memory || over_size)) close();
    open.lanes.push_back(unit.lane);
    open.bytes += unit.bytes;
    open.elements += unit.elements;
    open.compute += unit.compute;
  }
  if (!open.lanes.empty()) close();
  std::vector<bool> planned(lanes.size(), false);
  for (const auto& group : plan.groups) {
    for (size_t lane : group) planned[lane] = true;
  }
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (!planned[i]) plan.groups.push_back({i});
  }
  std::sort(plan.groups.begin(), plan.groups.end());
  return plan;
}

BucketPlan plan_automatically(const Graph& graph, const std::vector<ParamLane>& lanes,
                              const PassContext& context) {
  std::vector<BucketItem> items;
  for (const ParamLane& lane : lanes) items.push_back(lane.item);
  std::vector<Candidate> candidates = {
      {"transformer_block", plan_by_block(items)},
      {"greedy", plan_greedily(graph, lanes, context.device)},
      {"size", plan_by_size(items, context.config.compile.bucket_min_parameters)},
      {"none", plan_each_alone(items)},
  };
  for (Candidate& candidate : candidates) evaluate(candidate, graph, context);
  Candidate& best = best_of(candidates);
  std::vector<std::string> times;
  for (const Candidate& candidate : candidates) {
    times.push_back(cat(candidate.name, " ", milliseconds(candidate.estimate.time.seconds),
                        candidate.fits ? "" : " (too large)"));
  }
  best.plan.note = cat(best.name, " is the best of ", join(times, ", "));
  return std::move(best.plan);
}

}  // namespace weft

// Every node that moves gets a slot: the position of the node before which it is placed. Gathers
// are placed first, by the gathers before them; then one walk in order places reductions and what
// depends on them. Each moves as far as requested, or as far as free memory along the way allows.
// A transfer of activations starts early enough to be hidden behind the compute before its reader.
#include "passes/overlap_schedule.h"
#include "passes/degrees.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "config/derived.h"
#include "graph/comm_cost.h"
#include "graph/ops/ops.h"
#include "passes/overlap_requests.h"

namespace weft {

namespace {

constexpr int64_t kMaxAutomatic = 4;
// A deeper prefetch must gain more than the error of the estimate.
constexpr double kWorthwhile = 0.999;

// The free bytes at each position of the order without overlap. If that order already exceeds the
// device's memory, moves may use what is free below its peak.
class Room {
 public:
  Room(const MemoryCurve& memory, int64_t device_bytes) : used_(memory.live_bytes) {
    if (device_bytes == 0) return;
    limit_ = std::max(device_bytes - memory.persistent_bytes, memory.peak_bytes());
  }

  // Reserves the bytes from one position up to another, if they are free all the way.
  bool reserve(int64_t begin, int64_t end, int64_t bytes) {
    if (begin >= end) return true;
    const auto first = used_.begin() + begin;
    const auto last = used_.begin() + end;
    if (limit_ - *std::max_element(first, last) < bytes) return false;
    std::for_each(first, last, [bytes](int64_t& used) { used += bytes; });
    return true;
  }

 private:
  std::vector<int64_t> used_;
  int64_t limit_ = std::numeric_limits<int64_t>::max();
};

// The order of nodes with the same slot: what begins a transfer comes first.
enum class Urgency {
  Gather,     // the start of a prefetched gather, and the storage it reads
  Reduction,  // the start of another collective, unless one of its operands has moved down
  Rest,       // waits, and nodes with an operand that has moved down
};

// Where a moved node goes.
struct Slot {
  int64_t before = 0;  // position of the node it is placed before; one past the last: the end
  Urgency urgency = Urgency::Rest;
};

// Collectives of one op over one axis, which keep their relative order.
struct Queue {
  std::string_view op;
  std::string_view axis;
  auto operator<=>(const Queue&) const = default;  // NOLINT(modernize-use-nullptr): not one
};

Queue queue_of(const Node& start) {
  return {start.op->name(), std::get<std::string>(start.attr("axis"))};
}

Node* wait_of(const Node& start) {
  return start.result()->users.at(0);
}

// Whether the start transfers activations or their gradients, which depend on the compute before.
bool moves_activations(const Node& start) {
  return stream_of(start) == StreamId::Activation;
}

bool computes(const Node& node) {
  return !node.op->traits.source && !node.op->traits.collective;
}

// How far down a wait can move.
struct Deadline {
  int64_t latest = 0;        // position of the first node that needs the results and stays
  bool accumulates = false;  // the results are accumulated on the way there
};

// The step in its order without overlap: what every trial starts from.
class Baseline {
 public:
  Baseline(const Graph& graph, const PassContext& context)
      : nodes_(graph.nodes()),
        mesh_(graph.mesh()),
        device_(context.device),
        position_(positions(graph)),
        room_(memory_curve(graph, nodes_), context.device.memory_bytes),
        requests_(read_overlap_requests(nodes_, context.config)) {
    for (Node* node : nodes_) {
      if (node->phase != Phase::Optimizer) end_of_backward_ = position(node) + 1;
      if (!is_start(*node->op) || moves_activations(*node)) continue;
      (is_prefetchable(*node) ? gathers_ : others_)[queue_of(*node)].push_back(node);
    }
    for (const auto& output : graph.outputs()) outputs_.insert(output.value);
  }

  const std::vector<Node*>& nodes() const { return nodes_; }
  int64_t size() const { return static_cast<int64_t>(nodes_.size()); }
  int64_t position(const Node* node) const { return position_.at(node); }
  const Room& room() const { return room_; }

  // Starts in order: of gathers that can be prefetched, and of all other collectives.
  using Queues = std::map<Queue, std::vector<Node*>>;
  const Queues& gathers() const { return gathers_; }
  const std::vector<Node*>& others_like(const Node& start) const {
    return others_.at(queue_of(start));
  }

  // The largest number of buckets that can be gathered ahead.
  int64_t most_ahead() const {
    size_t most = 0;
    for (const auto& [queue, starts] : gathers_) most = std::max(most, starts.size());
    return static_cast<int64_t>(most);
  }

  // The compute that compile.overlap_with names for this collective, or nullptr.
  const ComputeRange* request_for(const Node& start) const {
    const auto found = requests_.find(&start);
    return found == requests_.end() ? nullptr : &found->second;
  }

  int64_t bytes_of(const Node& start) const {
    return static_cast<int64_t>(collective_bytes(start.call(), mesh_));
  }

  double seconds_of(const Node& node) const { return local_seconds(node.call(), mesh_, device_); }

  // Position of the first reader, or of the node itself if there is none.
  int64_t first_use(const Node& node) const {
    int64_t first = size();
    for (const auto& result : node.results) {
      for (const Node* user : result->users) first = std::min(first, position(user));
    }
    return first == size() ? position(&node) : first;
  }

  // Outputs and unused results are needed at the end of the backward.
  Deadline deadline_of(const Node& node) const {
    Deadline deadline{.latest = size()};
    bool is_used = false;
    for (const auto& result : node.results) {
      for (const Node* user : result->users) {
        const Deadline next = forwards(*user) ? deadline_of(*user) : Deadline{position(user)};
        deadline.latest = std::min(deadline.latest, next.latest);
        deadline.accumulates |= next.accumulates || user->op == &kAccumulate;
      }
      const bool is_output = outputs_.contains(result.get());
      if (is_output) deadline.latest = std::min(deadline.latest, end_of_backward_);
      is_used |= is_output || !result->users.empty();
    }
    if (!is_used) deadline.latest = std::max(end_of_backward_, position(&node));
    return deadline;
  }

 private:
  // Only storage exists before the step; what an update gathers does not.
  static bool is_prefetchable(const Node& start) {
    return start.op->collective->prefetchable && start.operand("x")->def->op->traits.source;
  }

  const std::vector<Node*> nodes_;
  const Mesh& mesh_;
  const DeviceSpec& device_;
  const std::unordered_map<const Node*, int64_t> position_;
  const Room room_;
  const OverlapRequests requests_;
  std::unordered_set<const Value*> outputs_;
  int64_t end_of_backward_ = 0;
  Queues gathers_;
  Queues others_;
};

// One attempt to place every collective, with a given number of buckets to gather ahead.
class Trial {
 public:
  Trial(const Baseline& baseline, int64_t prefetch)
      : base_(baseline),
        prefetch_(prefetch),
        in_flight_(std::max<int64_t>(1, prefetch)),
        room_(baseline.room()),
        slots_(baseline.nodes().size()) {}

  Schedule run() {
    for (const auto& [queue, starts] : base_.gathers()) place_gathers(starts);
    for (const Node* node : base_.nodes()) {
      if (!slot(node)) place_after_operands(*node);
    }
    return {order(), deepest_, held_};
  }

 private:
  // When the operands of a node are available.
  struct Ready {
    int64_t before = 0;    // the first possible slot
    bool is_late = false;  // an operand has moved down
    bool is_rest = false;  // an operand is placed last in that slot
  };

  std::optional<Slot>& slot(const Node* node) {
    return slots_[static_cast<size_t>(base_.position(node))];
  }

  void place_gathers(const std::vector<Node*>& starts) {
    std::vector<int64_t> places;
    for (size_t i = 0; i < starts.size(); ++i) {
      places.push_back(gather_place(starts, i, places.empty() ? 0 : places.back()));
    }
    // No gather starts after a later one.
    for (size_t i = places.size(); i-- > 1;) places[i - 1] = std::min(places[i - 1], places[i]);
    for (size_t i = 0; i < starts.size(); ++i) {
      const Node* wait = wait_of(*starts[i]);
      slot(starts[i]) = {places[i], Urgency::Gather};
      slot(wait) = {base_.first_use(*wait), Urgency::Rest};
      lift_storage(starts[i]->operand("x")->def, places[i]);
    }
  }

  // The position of the gather `prefetch_` buckets earlier, before the compute which that gather is
  // for; a later one if the result would not fit.
  int64_t gather_place(const std::vector<Node*>& starts, size_t i, int64_t earliest) {
    const Node& start = *starts[i];
    const int64_t own = base_.position(&start);
    const int64_t bytes = base_.bytes_of(start);
    if (const ComputeRange* request = base_.request_for(start)) {
      const bool in_time = request->begin < base_.first_use(*wait_of(start));
      if (in_time && room_.reserve(request->begin, own, bytes)) return request->begin;
    }
    const int64_t wanted = std::min(prefetch_, static_cast<int64_t>(i));
    for (int64_t ahead = wanted; ahead > 0; --ahead) {
      const int64_t at = base_.position(starts[i - static_cast<size_t>(ahead)]);
      if (at < earliest || !room_.reserve(at, own, bytes)) continue;
      deepest_ = std::max(deepest_, ahead);
      held_ += ahead < wanted ? 1 : 0;
      return at;
    }
    held_ += wanted > 0 ? 1 : 0;
    return own;
  }

  // Storage must be defined before the first gather that reads it.
  void lift_storage(const Node* storage, int64_t gather) {
    if (base_.position(storage) < gather) return;
    const std::optional<Slot>& lifted = slot(storage);
    slot(storage) = {lifted ? std::min(lifted->before, gather) : gather, Urgency::Gather};
  }

  void place_after_operands(const Node& node) {
    const Ready ready = ready_of(node);
    if (is_start(*node.op)) {
      slot(&node) =
          moves_activations(node) ? activation_slot(node, ready) : start_slot(node, ready);
    } else if (node.op == &kWait) {
      const bool activations = moves_activations(*node.variadic("f").front()->def);
      slot(&node) = {activations ? activation_wait(node) : wait_place(node, ready.is_late),
                     Urgency::Rest};
    } else if (ready.before > base_.position(&node)) {
      slot(&node) = {ready.before, Urgency::Rest};
    }
  }

  Ready ready_of(const Node& node) {
    Ready ready;
    for (const Value* operand : node.operands) {
      const int64_t own = base_.position(operand->def);
      const std::optional<Slot>& moved = slot(operand->def);
      ready.is_late |= moved && moved->before > own;
      const int64_t before = moved ? moved->before : own + 1;
      if (before < ready.before) continue;
      const bool is_rest = moved && moved->urgency == Urgency::Rest;
      ready.is_rest = is_rest || (before == ready.before && ready.is_rest);
      ready.before = before;
    }
    return ready;
  }

  // After other readers of the operands it overwrites, and not before an earlier start of its
  // queue.
  Slot start_slot(const Node& start, const Ready& ready) {
    int64_t before = ready.before;
    for (int operand : overwritten_operands(start.call())) {
      if (operand < 0) continue;
      for (const Node* user : start.operands[static_cast<size_t>(operand)]->users) {
        if (user != &start) before = std::max(before, base_.position(user) + 1);
      }
    }
    int64_t& last = last_start_[queue_of(start)];
    last = std::max(last, before);
    const bool after_rest = ready.is_late || (ready.is_rest && last == ready.before);
    return {last, after_rest ? Urgency::Rest : Urgency::Reduction};
  }

  // Before as much compute as takes as long as the transfer, if its operands are ready by then.
  Slot activation_slot(const Node& start, const Ready& ready) {
    const int64_t own = std::max(ready.before, base_.position(&start));
    const double needed = base_.seconds_of(start);
    double hidden = 0;
    int64_t place = own;
    while (place > ready.before && hidden < needed) {
      const Node& before = *base_.nodes()[static_cast<size_t>(--place)];
      if (computes(before)) hidden += base_.seconds_of(before);
    }
    // The operands of a reduction have just been computed; a gather needs memory for its result.
    if (!room_.reserve(place, own, base_.bytes_of(start))) {
      place = own;
      ++held_;
    }
    // What another transfer brings is there after its wait.
    const bool after_rest = ready.is_rest && place == ready.before;
    return {place, after_rest ? Urgency::Rest : Urgency::Reduction};
  }

  // Directly before the first reader; the operands of a reduction stay live until then.
  int64_t activation_wait(const Node& wait) {
    const Node& start = *wait.variadic("f").front()->def;
    const int64_t earliest = slot(&start)->before;
    const int64_t target = std::max(earliest, base_.first_use(wait));
    const int64_t bytes = is_gather(*start.op) ? 0 : base_.bytes_of(start);
    if (room_.reserve(base_.position(&wait), target, bytes)) return target;
    ++held_;
    return std::max(earliest, base_.position(&wait));
  }

  int64_t wait_place(const Node& wait, bool start_is_late) {
    const Node& start = *wait.variadic("f").front()->def;
    const int64_t earliest = slot(&start)->before;
    const Deadline deadline = base_.deadline_of(wait);
    // Full operands stay live up to the wait, unless they are overwritten.
    const bool holds_memory =
        (!is_gather(*start.op) && start.op->overwrites.empty()) || deadline.accumulates;
    const int64_t bytes = holds_memory ? base_.bytes_of(start) : 0;
    // The place closest to the target, or nullopt if memory does not allow it.
    const auto wait_at = [&](int64_t target) -> std::optional<int64_t> {
      const int64_t place = std::min(target, deadline.latest);
      if (!room_.reserve(base_.position(&wait), place, bytes)) return std::nullopt;
      return std::max(earliest, place);
    };
    const ComputeRange* request = base_.request_for(start);
    if (request != nullptr && request->end > earliest) {
      if (const auto place = wait_at(request->end)) return *place;
    }
    if (!holds_memory) return std::max(earliest, deadline.latest);
    // Only a few may be in flight at once. A start that has moved down is followed by as many
    // others later on.
    const std::vector<Node*>& queue = base_.others_like(start);
    const auto own = std::find(queue.begin(), queue.end(), &start) - queue.begin();
    for (int64_t later = in_flight_; later > 0; --later) {
      const auto next = static_cast<size_t>(own + later * (start_is_late ? 2 : 1));
      const auto place =
          wait_at(next < queue.size() ? base_.position(queue[next]) : deadline.latest);
      if (!place) continue;
      held_ += later < in_flight_ ? 1 : 0;
      return *place;
    }
    ++held_;
    return earliest;
  }

  std::vector<Node*> order() const {
    const std::vector<Node*>& nodes = base_.nodes();
    std::vector<std::vector<size_t>> moved_to(nodes.size() + 1);
    for (size_t k = 0; k < nodes.size(); ++k) {
      if (slots_[k]) moved_to[static_cast<size_t>(slots_[k]->before)].push_back(k);
    }
    std::vector<Node*> order;
    for (size_t k = 0; k <= nodes.size(); ++k) {
      std::stable_sort(moved_to[k].begin(), moved_to[k].end(),
                       [&](size_t a, size_t b) { return slots_[a]->urgency < slots_[b]->urgency; });
      for (size_t moved : moved_to[k]) order.push_back(nodes[moved]);
      if (k < nodes.size() && !slots_[k]) order.push_back(nodes[k]);
    }
    return order;
  }

  const Baseline& base_;
  const int64_t prefetch_;   // buckets to gather ahead
  const int64_t in_flight_;  // reductions that may start before an earlier one is waited for
  Room room_;                // what is still free
  std::vector<std::optional<Slot>> slots_;  // by position; empty: the node stays
  std::map<Queue, int64_t> last_start_;     // slot of the latest start so far
  int64_t deepest_ = 0;                     // largest number of buckets that a gather is ahead
  int64_t held_ = 0;                        // collectives moved less far than requested
};

// The depth that the estimate favours, as far as memory allows.
Schedule schedule_by_time(const Graph& graph, const PassContext& context,
                          const Baseline& baseline) {
  Schedule best = Trial(baseline, 0).run();
  double best_seconds = estimate_order(graph, best.order, context).time.seconds;
  const int64_t most = std::clamp<int64_t>(baseline.most_ahead(), 1, kMaxAutomatic);
  for (int64_t prefetch = 1; prefetch <= most; ++prefetch) {
    Schedule next = Trial(baseline, prefetch).run();
    if (next.prefetch < prefetch) break;
    const double seconds = estimate_order(graph, next.order, context).time.seconds;
    if (seconds >= kWorthwhile * best_seconds) continue;
    best = std::move(next);
    best_seconds = seconds;
  }
  return best;
}

// Whether there is compute between the operand of the collective and its first reader. Most
// transfers of activations have none: they stay blocking, without the cost of events.
bool has_compute_around(std::span<Node* const> order, size_t at) {
  const Node& node = *order[at];
  const auto is_compute = [](const Node* other) { return computes(*other); };
  const auto before =
      std::find_if(order.rend() - static_cast<std::ptrdiff_t>(at), order.rend(), is_compute);
  const auto after =
      std::find_if(order.begin() + static_cast<std::ptrdiff_t>(at) + 1, order.end(), is_compute);
  const auto reads = [](const Node& reader, const Node& def) {
    return std::any_of(reader.operands.begin(), reader.operands.end(),
                       [&](const Value* operand) { return operand->def == &def; });
  };
  return (before != order.rend() && !reads(node, **before)) ||
         (after != order.end() && !reads(**after, node));
}

}  // namespace

size_t split_collectives(Graph& graph) {
  const std::vector<Node*> order = graph.nodes();
  std::vector<Node*> chosen;
  for (size_t at = 0; at < order.size(); ++at) {
    const Node& node = *order[at];
    if (start_of(*node.op) == nullptr) continue;
    if (is_flat_collective(node) || has_compute_around(order, at)) chosen.push_back(order[at]);
  }
  for (Node* node : chosen) {
    NodeOptions options{.name = {}, .path = node->path, .phase = node->phase};
    std::vector<std::string> names;
    for (const auto& result : node->results) {
      names.push_back(result->name);
      options.result_names.push_back(result->name + ".start");
    }
    Node* start = graph.insert(node, *start_of(*node->op), node->operands, node->attrs, options);
    std::vector<Value*> futures;
    for (const auto& result : start->results) futures.push_back(result.get());
    for (std::string& name : options.result_names) name += ".wait";
    Node* wait = graph.insert(node, kWait, std::move(futures), {}, options);
    start->recomputed = wait->recomputed = node->recomputed;
    for (size_t i = 0; i < names.size(); ++i) graph.replace_uses(node->result(i), wait->result(i));
    graph.erase(node);
    for (size_t i = 0; i < names.size(); ++i) graph.rename(wait->result(i), names[i]);
  }
  return chosen.size();
}

StepEstimate estimate_order(const Graph& graph, std::span<Node* const> order,
                            const PassContext& context) {
  const bool trains = context.goal == Goal::Train;
  return estimate_step(graph, order, context.device,
                       trains ? accumulation_steps(context.config, degrees_of(graph.mesh())) : 1);
}

Schedule choose_schedule(const Graph& graph, const PassContext& context) {
  const Baseline baseline(graph, context);
  const int64_t wanted = context.config.compile.prefetch;
  if (wanted < 0) return schedule_by_time(graph, context, baseline);
  return Trial(baseline, std::min(wanted, std::max<int64_t>(1, baseline.most_ahead()))).run();
}

}  // namespace weft

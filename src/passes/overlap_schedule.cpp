// Every node that moves gets a slot: the index of the node before which it is placed. Gathers are
// placed first, by the waits before them; then one walk in order places reductions and what depends
// on them. Each moves as far as requested, or as far as free memory along the way allows.
#include "passes/overlap_schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "config/derived.h"
#include "graph/comm_cost.h"
#include "graph/module_path.h"
#include "graph/ops/ops.h"

namespace weft {

namespace {

constexpr int64_t kMaxAutomatic = 4;
// A deeper prefetch must gain more than the error of the estimate.
constexpr double kWorthwhile = 0.999;

bool is_under(std::string_view path, std::string_view module) {
  return match_module(module, path).has_value();
}

// The free bytes at each position of the order without overlap. If that order already exceeds the
// device's memory, moves may use what is free below its peak.
class Room {
 public:
  Room(const MemoryCurve& memory, int64_t device_bytes) : used_(memory.live_bytes) {
    if (device_bytes == 0) return;
    limit_ = std::max(device_bytes - memory.persistent_bytes, memory.peak_bytes());
  }

  // Reserves the bytes from one position up to another, if they are free all the way.
  bool take(int64_t begin, int64_t end, int64_t bytes) {
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

// An entry of compile.overlap_with.
struct Request {
  std::string bucket;
  std::string module;
};

// Names of the parameters that a collective gathers or reduces.
std::vector<std::string> members_of(const Node& start) {
  const Node* node = &start;
  if (is_gather(*start.op)) {
    const Value* sent = start.operands[0];
    node = sent->def;
    if (node->op == &kState) {
      // A low-precision copy that the update writes.
      const auto update = std::find_if(sent->users.begin(), sent->users.end(),
                                       [](const Node* user) { return is_adamw(*user->op); });
      if (update != sent->users.end()) node = *update;
    }
    if (is_adamw(*node->op)) node = node->operands.at(0)->def;
  } else {
    // Follows nodes that only forward the value, down to the update.
    while (node != nullptr && !is_adamw(*node->op)) {
      const Node* next = nullptr;
      for (const auto& result : node->results) {
        for (const Node* user : result->users) {
          if (is_adamw(*user->op) || user->op->traits.collective || user->op == &kAccumulate) {
            next = user;
          }
        }
      }
      node = next;
    }
    if (node == nullptr) return {};
    node = node->operands.at(0)->def;
  }
  if (node->op == &kBucket) return std::get<std::vector<std::string>>(node->attrs.at(0));
  if (node->op == &kParam) return {std::get<std::string>(node->attrs.at(0))};
  return {};
}

class Scheduler {
 public:
  Scheduler(const Graph& graph, const PassContext& context)
      : graph_(graph),
        nodes_(graph.nodes()),
        all_room_(memory_curve(graph, nodes_), context.device.memory_bytes),
        room_(all_room_) {
    for (size_t k = 0; k < nodes_.size(); ++k) {
      index_.emplace(nodes_[k], static_cast<int64_t>(k));
      if (nodes_[k]->phase != Phase::Optimizer) end_of_backward_ = static_cast<int64_t>(k) + 1;
      if (!is_start(*nodes_[k]->op)) continue;
      auto& list = is_prefetchable(*nodes_[k]) ? gathers_ : others_;
      list[stream_of(*nodes_[k])].push_back(nodes_[k]);
    }
    for (const auto& output : graph.outputs()) outputs_.push_back(output.value);
    read_requests(context.config);
  }

  // The largest number of buckets that can be gathered ahead.
  int64_t most() const {
    size_t most = 0;
    for (const auto& [stream, list] : gathers_) most = std::max(most, list.size());
    return static_cast<int64_t>(most);
  }

  Schedule schedule(int64_t prefetch) {
    prefetch_ = prefetch;
    reductions_ = std::max<int64_t>(1, prefetch);
    deepest_ = 0;
    held_ = 0;
    room_ = all_room_;
    slot_.assign(nodes_.size(), kStays);
    urgency_.assign(nodes_.size(), 2);
    last_start_.clear();
    for (const auto& [stream, list] : gathers_) place_gathers(list);
    for (int64_t k = 0; k < size(); ++k) visit(k);
    return {emit(), deepest_, held_};
  }

 private:
  static constexpr int64_t kStays = -1;

  int64_t size() const { return static_cast<int64_t>(nodes_.size()); }
  int64_t& slot(const Node* node) { return slot_[static_cast<size_t>(index_.at(node))]; }

  // Only storage exists before the step; what an update gathers does not.
  static bool is_prefetchable(const Node& start) {
    return is_gather(*start.op) && start.operands[0]->def->op->traits.source;
  }

  static std::string stream_of(const Node& start) {
    return cat(start.op->name(), " ", std::get<std::string>(start.attr("axis")));
  }

  static Node* wait_of(const Node& start) { return start.result()->users.at(0); }

  void read_requests(const Config& config) {
    for (const std::string& entry : config.compile.overlap_with) {
      const size_t equals = entry.find('=');
      const Request request{std::string(trim(std::string_view(entry).substr(0, equals))),
                            std::string(trim(std::string_view(entry).substr(equals + 1)))};
      const std::string subject = describe_key(config, "compile.overlap_with");
      check_module_pattern(request.bucket, subject);
      check_module_pattern(request.module, subject);
      bool has_bucket = false;
      bool has_module = false;
      for (const Node* node : nodes_) {
        if (!node->op->traits.collective) has_module |= is_under(node->path, request.module);
        if (!is_start(*node->op) || !serves(*node, request)) continue;
        has_bucket = true;
        requests_[node] = request;
      }
      USER_CHECK(has_bucket, subject, ": no bucket contains parameters of \"", request.bucket,
                 "\"");
      USER_CHECK(has_module, subject, ": there is no module \"", request.module, "\"");
    }
  }

  static bool serves(const Node& start, const Request& request) {
    const std::vector<std::string> members = members_of(start);
    return std::any_of(members.begin(), members.end(),
                       [&](const std::string& member) { return is_under(member, request.bucket); });
  }

  // Indices of the first and one past the last compute node of the module in this phase.
  std::pair<int64_t, int64_t> range_of(const std::string& module, Phase phase) const {
    std::pair<int64_t, int64_t> range = {size(), 0};
    for (int64_t k = 0; k < size(); ++k) {
      const Node& node = *nodes_[static_cast<size_t>(k)];
      const bool counts = !node.op->traits.collective && !node.op->traits.source;
      if (!counts || node.phase != phase || !is_under(node.path, module)) continue;
      range.first = std::min(range.first, k);
      range.second = k + 1;
    }
    return range;
  }

  int64_t first_use(const Node& node) const {
    int64_t first = size();
    for (const auto& result : node.results) {
      for (const Node* user : result->users) first = std::min(first, index_.at(user));
    }
    return first == size() ? index_.at(&node) : first;
  }

  int64_t bytes_of(const Node& start) const {
    return static_cast<int64_t>(collective_bytes(start.call(), graph_.mesh()));
  }

  // Each start moves to the position of the gather `prefetch_` buckets earlier, before the compute
  // which that gather is for. It moves less far if its result would not fit.
  void place_gathers(const std::vector<Node*>& starts) {
    std::vector<int64_t> uses;
    std::vector<int64_t> places;
    for (size_t i = 0; i < starts.size(); ++i) {
      uses.push_back(first_use(*wait_of(*starts[i])));
      places.push_back(gather_place(starts, i, uses.back(), places.empty() ? 0 : places.back()));
    }
    for (size_t i = places.size(); i-- > 1;) places[i - 1] = std::min(places[i - 1], places[i]);
    for (size_t i = 0; i < starts.size(); ++i) {
      place(starts[i], places[i], 0);
      place(wait_of(*starts[i]), uses[i], 2);
      Node* storage = starts[i]->operands[0]->def;
      if (index_.at(storage) >= places[i]) {
        place(storage, slot(storage) == kStays ? places[i] : std::min(slot(storage), places[i]), 0);
      }
    }
  }

  int64_t gather_place(const std::vector<Node*>& starts, size_t i, int64_t use, int64_t earliest) {
    const int64_t own = index_.at(starts[i]);
    const int64_t bytes = bytes_of(*starts[i]);
    const auto request = requests_.find(starts[i]);
    if (request != requests_.end()) {
      const int64_t begin = range_of(request->second.module, starts[i]->phase).first;
      if (begin < use && room_.take(begin, own, bytes)) return begin;
    }
    const int64_t asked = std::min(prefetch_, static_cast<int64_t>(i));
    for (int64_t ahead = asked; ahead > 0; --ahead) {
      const int64_t at = index_.at(starts[i - static_cast<size_t>(ahead)]);
      if (at < earliest || !room_.take(at, own, bytes)) continue;
      deepest_ = std::max(deepest_, ahead);
      held_ += ahead < asked ? 1 : 0;
      return at;
    }
    held_ += asked > 0 ? 1 : 0;
    return own;
  }

  void place(const Node* node, int64_t at, int urgency) {
    slot(node) = at;
    urgency_[static_cast<size_t>(index_.at(node))] = urgency;
  }

  void visit(int64_t k) {
    Node* node = nodes_[static_cast<size_t>(k)];
    if (slot(node) != kStays) return;
    int64_t ready = 0;
    bool is_late = false;  // an operand has moved down
    for (const Value* operand : node->operands) {
      const int64_t moved = slot(operand->def);
      is_late |= moved > index_.at(operand->def);
      ready = std::max(ready, moved == kStays ? index_.at(operand->def) + 1 : moved);
    }
    if (is_start(*node->op)) {
      place_start(node, ready, is_late);
    } else if (node->op == &kWait) {
      place(node, wait_slot(*node, is_late), 2);
    } else if (ready > k) {
      place(node, ready, 2);
    }
  }

  void place_start(Node* node, int64_t ready, bool is_late) {
    for (int operand : overwritten_operands(node->call())) {
      if (operand < 0) continue;
      for (const Node* user : node->operands[static_cast<size_t>(operand)]->users) {
        if (user != node) ready = std::max(ready, index_.at(user) + 1);
      }
    }
    int64_t& last = last_start_[stream_of(*node)];
    last = std::max(last, ready);
    place(node, last, is_late ? 2 : 1);
  }

  int64_t wait_slot(const Node& wait, bool start_is_late) {
    const Node* start = wait.operands.at(0)->def;
    int64_t latest = size();
    bool passes_on = false;
    find_latest(wait, latest, passes_on);
    // The operands stay live up to the wait; an all-reduce works in place.
    const bool frees = &collective_of(*start->op) == &kReduceScatter || passes_on;
    const int64_t bytes = frees ? bytes_of(*start) : 0;
    const auto fits = [&](int64_t target) {
      return room_.take(index_.at(&wait), std::min(target, latest), bytes);
    };
    const auto placed = [&](int64_t target) {
      return std::max(slot(start), std::min(target, latest));
    };
    const auto request = requests_.find(start);
    if (request != requests_.end()) {
      const int64_t end = range_of(request->second.module, start->phase).second;
      if (end > slot(start) && fits(end)) return placed(end);
    }
    if (!frees) return placed(latest);
    // Only a few may be in flight at once.
    const auto& list = others_.at(stream_of(*start));
    const auto at = std::find(list.begin(), list.end(), start) - list.begin();
    for (int64_t later = reductions_; later > 0; --later) {
      const auto next = static_cast<size_t>(at + later * (start_is_late ? 2 : 1));
      const int64_t target = next < list.size() ? index_.at(list[next]) : latest;
      if (!fits(target)) continue;
      held_ += later < reductions_ ? 1 : 0;
      return placed(target);
    }
    ++held_;
    return slot(start);
  }

  // Finds the index of the first node that needs the results and cannot move down.
  void find_latest(const Node& node, int64_t& latest, bool& passes_on) const {
    bool is_used = false;
    for (const auto& result : node.results) {
      for (const Node* user : result->users) {
        is_used = true;
        if (user->op->traits.collective || user->op == &kAccumulate) {
          passes_on |= user->op == &kAccumulate;
          find_latest(*user, latest, passes_on);
        } else {
          latest = std::min(latest, index_.at(user));
        }
      }
      if (std::find(outputs_.begin(), outputs_.end(), result.get()) != outputs_.end()) {
        latest = std::min(latest, end_of_backward_);
        is_used = true;
      }
    }
    if (!is_used) latest = std::min(latest, std::max(end_of_backward_, index_.at(&node)));
  }

  std::vector<Node*> emit() const {
    std::vector<std::vector<int64_t>> at(nodes_.size() + 1);
    for (size_t k = 0; k < nodes_.size(); ++k) {
      if (slot_[k] != kStays) at[static_cast<size_t>(slot_[k])].push_back(static_cast<int64_t>(k));
    }
    std::vector<Node*> order;
    for (size_t k = 0; k <= nodes_.size(); ++k) {
      std::stable_sort(at[k].begin(), at[k].end(), [&](int64_t a, int64_t b) {
        return urgency_[static_cast<size_t>(a)] < urgency_[static_cast<size_t>(b)];
      });
      for (int64_t moved : at[k]) order.push_back(nodes_[static_cast<size_t>(moved)]);
      if (k < nodes_.size() && slot_[k] == kStays) order.push_back(nodes_[k]);
    }
    return order;
  }

  const Graph& graph_;
  const std::vector<Node*> nodes_;
  const Room all_room_;
  Room room_;  // what is still free
  std::unordered_map<const Node*, int64_t> index_;
  std::vector<const Value*> outputs_;
  int64_t end_of_backward_ = 0;
  std::map<std::string, std::vector<Node*>> gathers_;  // starts by stream, in order
  std::map<std::string, std::vector<Node*>> others_;
  std::unordered_map<const Node*, Request> requests_;
  int64_t prefetch_ = 0;    // buckets gathered ahead
  int64_t reductions_ = 0;  // that may start before an earlier one is waited for
  int64_t deepest_ = 0;     // largest number of buckets that a gather is ahead
  int64_t held_ = 0;        // collectives moved less far than requested
  std::vector<int64_t> slot_;
  std::vector<int> urgency_;  // order within a slot: starts before waits
  std::map<std::string, int64_t> last_start_;
};

// The depth that the estimate favours, as far as memory allows.
Schedule schedule_by_time(const Graph& graph, const PassContext& context, Scheduler& scheduler) {
  Schedule best = scheduler.schedule(0);
  double best_seconds = estimate_order(graph, best.order, context).time.seconds;
  const int64_t most = std::clamp<int64_t>(scheduler.most(), 1, kMaxAutomatic);
  for (int64_t prefetch = 1; prefetch <= most; ++prefetch) {
    Schedule next = scheduler.schedule(prefetch);
    if (next.prefetch < prefetch) break;
    const double seconds = estimate_order(graph, next.order, context).time.seconds;
    if (seconds >= kWorthwhile * best_seconds) continue;
    best = std::move(next);
    best_seconds = seconds;
  }
  return best;
}

}  // namespace

size_t split_collectives(Graph& graph) {
  size_t count = 0;
  for (Node* node : graph.nodes()) {
    const OpDef* start_op = start_of(*node->op);
    if (start_op == nullptr) continue;
    NodeOptions options{.name = {}, .path = node->path, .phase = node->phase};
    std::vector<std::string> names;
    for (const auto& result : node->results) {
      names.push_back(result->name);
      options.result_names.push_back(result->name + ".start");
    }
    Node* start = graph.insert(node, *start_op, node->operands, node->attrs, options);
    std::vector<Value*> futures;
    for (const auto& result : start->results) futures.push_back(result.get());
    for (std::string& name : options.result_names) name += ".wait";
    Node* wait = graph.insert(node, kWait, std::move(futures), {}, options);
    start->recomputed = wait->recomputed = node->recomputed;
    for (size_t i = 0; i < names.size(); ++i) graph.replace_uses(node->result(i), wait->result(i));
    graph.erase(node);
    for (size_t i = 0; i < names.size(); ++i) graph.rename(wait->result(i), names[i]);
    ++count;
  }
  return count;
}

StepEstimate estimate_order(const Graph& graph, std::span<Node* const> order,
                            const PassContext& context) {
  const bool trains = context.goal == Goal::Train;
  return estimate_step(graph, order, context.device,
                       trains ? accumulation_steps(context.config, graph.mesh().ranks()) : 1);
}

Schedule choose_schedule(const Graph& graph, const PassContext& context) {
  Scheduler scheduler(graph, context);
  const int64_t wanted = context.config.compile.prefetch;
  if (wanted < 0) return schedule_by_time(graph, context, scheduler);
  return scheduler.schedule(std::min(wanted, std::max<int64_t>(1, scheduler.most())));
}

}  // namespace weft

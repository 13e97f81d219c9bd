// Parses rules and applies them one mesh axis at a time.
#include "graph/sharding.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/text.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

ShardingTerm parse_term(std::string_view text) {
  ShardingTerm term;
  term.leading = text.starts_with("...");
  if (term.leading) text.remove_prefix(3);
  term.added = text.ends_with("+");
  if (term.added) text.remove_suffix(1);
  for (char c : text) {
    CHECK(std::isalpha(static_cast<unsigned char>(c)) != 0, "sharding rule has \"", text, "\"");
    CHECK(term.dims.find(c) == std::string::npos, "sharding rule names ", text, " twice");
    term.dims += c;
  }
  return term;
}

std::vector<ShardingTerm> parse_terms(std::string_view text) {
  std::vector<ShardingTerm> terms;
  for (const std::string& item : split(text, ',')) terms.push_back(parse_term(trim(item)));
  return terms;
}

// A dim as the rule names it: a letter, or the index of a leading dim.
struct DimName {
  char letter = '.';
  int64_t index = 0;  // of a leading dim
  bool operator==(const DimName&) const = default;
};

// The name of a dim of a tensor with `rank` dims.
DimName name_of(const ShardingTerm& term, int64_t dim, int64_t rank) {
  const int64_t leading = rank - static_cast<int64_t>(term.dims.size());
  if (dim < leading) return {'.', dim};
  return {term.dims.at(static_cast<size_t>(dim - leading)), 0};
}

// The dim with that name, or nullopt.
std::optional<int64_t> find_dim(const ShardingTerm& term, int64_t rank, const DimName& name) {
  for (int64_t dim = 0; dim < rank; ++dim) {
    if (name_of(term, dim, rank) == name) return dim;
  }
  return std::nullopt;
}

// Applies the rule of a call for one axis.
class AxisRule {
 public:
  AxisRule(const Call& call, const ShardingRule& rule, const std::vector<Placement>& operands,
           std::string_view axis)
      : call_(call), rule_(rule), axis_(axis) {
    for (const Placement& placement : operands) {
      const auto found = std::find_if(placement.begin(), placement.end(),
                                      [&](const auto& entry) { return entry.axis == axis; });
      entries_.push_back(found == placement.end() ? nullptr : &*found);
    }
  }

  // The placement of each result over the axis.
  std::vector<AxisPlacement> results() {
    if (std::any_of(entries_.begin(), entries_.end(), is_partial)) return partial_results();
    if (rule_.operands.at(0).added) return added_results();
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i] != nullptr) take_shard(i);
    }
    for (size_t i = 0; i < entries_.size(); ++i) require_shard(i);
    std::vector<AxisPlacement> results;
    for (size_t i = 0; i < rule_.results.size(); ++i) results.push_back(shard_result(i));
    return results;
  }

 private:
  static bool is_partial(const AxisPlacement* entry) {
    return entry != nullptr && entry->kind == PlacementKind::Partial;
  }

  int64_t rank(size_t operand) const {
    return static_cast<int64_t>(call_.type(operand).shape.size());
  }

  std::vector<AxisPlacement> all_partial() const {
    return std::vector<AxisPlacement>(rule_.results.size(),
                                      {PlacementKind::Partial, std::string(axis_), 0});
  }

  std::vector<AxisPlacement> partial_results() const {
    for (size_t i = 0; i < entries_.size(); ++i) {
      const bool partial = is_partial(entries_[i]);
      call_.require(!partial || call_.op->traits.linear, operand_name(call_, i),
                    " is a partial sum over ", axis_, ", expected the full value; reduce it first");
      const bool constant = entries_[i] == nullptr && !is_floating(call_.type(i).dtype);
      call_.require(partial || constant || !call_.op->traits.linear, operand_name(call_, i),
                    " is not a partial sum over ", axis_, ", but other operands are");
    }
    return all_partial();
  }

  std::vector<AxisPlacement> added_results() const {
    for (size_t i = 0; i < entries_.size(); ++i) {
      call_.require(entries_[i] != nullptr, operand_name(call_, i), " ", i, " is not sharded over ",
                    axis_, ", but other operands are");
    }
    return all_partial();
  }

  // Records the dim along which operand `i` is sharded.
  void take_shard(size_t i) {
    const AxisPlacement& entry = *entries_[i];
    const ShardingTerm& term = rule_.operands[i];
    const bool flat = entry.kind == PlacementKind::Flat;
    call_.require(!flat || (term.leading && term.dims.empty() && rank(i) == 1),
                  operand_name(call_, i), " is flat over ", axis_, ", expected a tensor");
    call_.require(entry.dim >= 0 && entry.dim < rank(i), operand_name(call_, i), " has no dim ",
                  entry.dim, " to shard over ", axis_);
    const DimName name = name_of(term, entry.dim, rank(i));
    call_.require(std::isupper(static_cast<unsigned char>(name.letter)) == 0, "dim ", entry.dim,
                  " of ", operand_name(call_, i), " is sharded over ", axis_,
                  ", expected it unsharded");
    call_.require(!shard_ || (*shard_ == name && kind_ == entry.kind), "dim ", entry.dim, " of ",
                  operand_name(call_, i), " is sharded over ", axis_,
                  ", which shards other operands differently");
    shard_ = name;
    kind_ = entry.kind;
  }

  // An operand that has the sharded dim must be sharded along it.
  void require_shard(size_t i) const {
    const auto dim = find_dim(rule_.operands[i], rank(i), *shard_);
    call_.require(!dim || entries_[i] != nullptr, "dim ", dim.value_or(0), " of ",
                  operand_name(call_, i), " is not sharded over ", axis_,
                  ", but that of other operands is");
  }

  AxisPlacement shard_result(size_t i) const {
    const auto rank = static_cast<int64_t>(call_.results.at(i).shape.size());
    const auto dim = find_dim(rule_.results[i], rank, *shard_);
    if (!dim) return {PlacementKind::Partial, std::string(axis_), 0};
    return {kind_, std::string(axis_), kind_ == PlacementKind::Flat ? 0 : *dim};
  }

  const Call& call_;
  const ShardingRule& rule_;
  std::string_view axis_;
  std::vector<const AxisPlacement*> entries_;  // per operand, over the axis; nullptr: replicated
  std::optional<DimName> shard_;
  PlacementKind kind_ = PlacementKind::Sharded;
};

// The axes in order of first appearance in the operands.
std::vector<std::string_view> axes_of(const std::vector<Placement>& operands) {
  std::vector<std::string_view> axes;
  for (const Placement& placement : operands) {
    for (const AxisPlacement& entry : placement) {
      if (std::find(axes.begin(), axes.end(), entry.axis) == axes.end()) axes.push_back(entry.axis);
    }
  }
  return axes;
}

}  // namespace

ShardingRule parse_sharding(std::string_view text) {
  const size_t arrow = text.find("->");
  CHECK(arrow != std::string_view::npos, "sharding rule \"", text, "\" has no \"->\"");
  return {parse_terms(text.substr(0, arrow)), parse_terms(text.substr(arrow + 2))};
}

ShardingRule sharding_rule(const Call& call) {
  const OpDef& op = *call.op;
  CHECK(!op.sharding.empty() || op.sharding_of != nullptr, op.name(), " has no sharding rule");
  ShardingRule rule =
      parse_sharding(op.sharding_of != nullptr ? op.sharding_of(call) : std::string(op.sharding));
  const ShardingTerm last = rule.operands.back();
  rule.operands.resize(call.operands.size(), last);
  CHECK(rule.results.size() == call.results.size(), op.name(), ": sharding rule with ",
        rule.results.size(), " results");
  return rule;
}

std::vector<Placement> propagate(const Call& call, const std::vector<Placement>& operands) {
  std::vector<Placement> results(call.results.size());
  const std::vector<std::string_view> axes = axes_of(operands);
  if (axes.empty()) return results;
  const ShardingRule rule = sharding_rule(call);
  for (std::string_view axis : axes) {
    const std::vector<AxisPlacement> placed = AxisRule(call, rule, operands, axis).results();
    for (size_t i = 0; i < results.size(); ++i) results[i].push_back(placed[i]);
  }
  return results;
}

std::vector<Placement> result_placements(const Call& call) {
  std::vector<Placement> operands;
  for (const TensorType& type : call.operands) operands.push_back(type.placement);
  return propagate(call, operands);
}

bool is_linear(const OpDef& op) {
  return op.traits.linear;
}

}  // namespace weft

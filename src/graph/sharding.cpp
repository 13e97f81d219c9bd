// Parses rules and applies them one mesh axis at a time.
#include "graph/sharding.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/text.h"
#include "graph/dims.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

ShardingTerm parse_term(std::string_view text) {
  ShardingTerm term;
  term.leading = text.starts_with("...");
  if (term.leading) text.remove_prefix(3);
  term.added = text.ends_with("+");
  if (term.added) text.remove_suffix(1);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(') {
      const size_t close = text.find(')', i);
      CHECK(close != std::string_view::npos && !term.dims.empty(), "sharding rule has \"", text,
            "\"");
      term.parts.back() = dims::parts_of(text.substr(i - 1, close - i + 2));
      i = close;
      continue;
    }
    if (c == '<') {
      const size_t close = text.find('>', i);
      CHECK(close != std::string_view::npos && !term.dims.empty(), "sharding rule has \"", text,
            "\"");
      term.counted.back() = text.substr(i + 1, close - i - 1);
      i = close;
      continue;
    }
    CHECK(std::isalpha(static_cast<unsigned char>(c)) != 0, "sharding rule has \"", text, "\"");
    CHECK(term.dims.find(c) == std::string::npos, "sharding rule names ", text, " twice");
    term.dims += c;
    term.parts.emplace_back();
    term.counted.emplace_back();
  }
  return term;
}

std::vector<ShardingTerm> parse_terms(std::string_view text) {
  std::vector<ShardingTerm> terms;
  for (const std::string& item : split(text, ',')) terms.push_back(parse_term(trim(item)));
  return terms;
}

// The dims of a tensor with `rank` dims.
std::vector<RuleDim> dims_of(const ShardingTerm& term, size_t rank) {
  std::vector<RuleDim> dims;
  const size_t leading = rank - std::min(rank, term.dims.size());
  for (size_t i = 0; i < leading; ++i) dims.push_back({'.', static_cast<int64_t>(i)});
  for (size_t i = leading; i < rank; ++i) {
    dims.push_back({term.dims.at(i - leading), 0, term.counted.at(i - leading)});
  }
  return dims;
}

// Applies the rule of a call for one axis.
class AxisRule {
 public:
  AxisRule(const Call& call, const ShardingRule& rule, const RuleDims& dims,
           const std::vector<Placement>& operands, std::string_view axis)
      : call_(call), rule_(rule), dims_(dims), axis_(axis) {
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
    if (is_bilinear(call_)) {
      const auto placed = std::count_if(entries_.begin(), entries_.end(),
                                        [](const auto* entry) { return entry != nullptr; });
      call_.require(placed == 1, "both operands are placed over ", axis_,
                    ", but one of them is a partial sum");
      return all_partial();
    }
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
    const RuleDim& name = dims_.operands[i].at(static_cast<size_t>(entry.dim));
    call_.require(name.may_be_sharded(), "dim ", entry.dim, " of ", operand_name(call_, i),
                  " is sharded over ", axis_, ", expected it unsharded");
    const bool alike = !shard_ || shard_->follows(name) || name.follows(*shard_);
    call_.require(alike && (!shard_ || kind_ == entry.kind), "dim ", entry.dim, " of ",
                  operand_name(call_, i), " is sharded over ", axis_,
                  ", which shards other operands differently");
    if (!shard_ || shard_->follows(name)) shard_ = name;  // not one that counts the shards of it
    kind_ = entry.kind;
  }

  // An operand that has the sharded dim must be sharded along it.
  void require_shard(size_t i) const {
    const auto& dims = dims_.operands[i];
    const auto found = std::find_if(dims.begin(), dims.end(), [&](const RuleDim& dim) {
      return dim.follows(*shard_) || shard_->follows(dim);
    });
    call_.require(found == dims.end() || entries_[i] != nullptr, "dim ", found - dims.begin(),
                  " of ", operand_name(call_, i), " is not sharded over ", axis_,
                  ", but that of other operands is");
  }

  AxisPlacement shard_result(size_t i) const {
    const int64_t dim = find_dim(dims_.results[i], *shard_);
    if (dim < 0) return {PlacementKind::Partial, std::string(axis_), 0};
    return {kind_, std::string(axis_), kind_ == PlacementKind::Flat ? 0 : dim};
  }

  const Call& call_;
  const ShardingRule& rule_;
  const RuleDims& dims_;
  std::string_view axis_;
  std::vector<const AxisPlacement*> entries_;  // per operand, over the axis; nullptr: replicated
  std::optional<RuleDim> shard_;
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

const AxisPlacement* entry_over(const Placement& placement, std::string_view axis) {
  const auto found = std::find_if(placement.begin(), placement.end(),
                                  [&](const auto& entry) { return entry.axis == axis; });
  return found == placement.end() ? nullptr : &*found;
}

// The entries over expert axes replaced by ones like `entry` over the axes of the same ranks.
Placement with_dense_axes(const Placement& placement, const AxisPlacement& entry,
                          const Mesh& mesh) {
  const std::vector<MeshAxis> numbering = mesh.numbering_of(entry.axis);
  Placement dense;
  for (const MeshAxis& axis : mesh.axes) {
    const AxisPlacement* own = entry_over(placement, axis.name);
    const bool is_outer = std::find(numbering.begin(), numbering.end(), axis) != numbering.end();
    if (is_outer && own == nullptr) continue;
    dense.push_back(is_outer ? *own : AxisPlacement{entry.kind, axis.name, entry.dim});
  }
  return dense;
}

// Flat or sharded over every expert axis, by any dims, as flat over the axes of the same ranks.
Placement distributed_by_dense_axes(const Placement& placement, const Mesh& mesh) {
  for (const MeshAxis& axis : mesh.expert_axes) {
    const AxisPlacement* entry = entry_over(placement, axis.name);
    if (entry == nullptr || entry->kind == PlacementKind::Partial) return placement;
  }
  return with_dense_axes(placement, {PlacementKind::Flat, mesh.expert_axes.front().name}, mesh);
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
  if (op.parsed().has_variadic_results()) {
    rule.results.resize(call.results.size(), ShardingTerm(rule.results.back()));
  }
  CHECK(rule.results.size() == call.results.size(), op.name(), ": sharding rule with ",
        rule.results.size(), " results");
  return rule;
}

RuleDims rule_dims(const Call& call) {
  const ShardingRule rule = sharding_rule(call);
  RuleDims dims;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    dims.operands.push_back(dims_of(rule.operands[i], call.operands[i].shape.size()));
  }
  for (size_t i = 0; i < call.results.size(); ++i) {
    dims.results.push_back(dims_of(rule.results[i], call.results[i].shape.size()));
  }
  return dims;
}

bool RuleDim::follows(const RuleDim& dim) const {
  return *this == dim || counted.find(dim.letter) != std::string::npos;
}

int64_t find_dim(const std::vector<RuleDim>& dims, const RuleDim& dim) {
  const auto found = std::find_if(dims.begin(), dims.end(),
                                  [&](const RuleDim& other) { return other.follows(dim); });
  return found == dims.end() ? -1 : found - dims.begin();
}

std::vector<Placement> propagate(const Call& call, const std::vector<Placement>& operands) {
  std::vector<Placement> results(call.results.size());
  const std::vector<std::string_view> axes = axes_of(operands);
  if (axes.empty()) return results;
  const ShardingRule rule = sharding_rule(call);
  const RuleDims dims = rule_dims(call);
  for (std::string_view axis : axes) {
    const std::vector<AxisPlacement> placed = AxisRule(call, rule, dims, operands, axis).results();
    for (size_t i = 0; i < results.size(); ++i) results[i].push_back(placed[i]);
  }
  return results;
}

Placement by_dense_axes(const Placement& placement, const Mesh& mesh) {
  const auto first = std::find_if(placement.begin(), placement.end(), [&](const auto& entry) {
    return mesh.is_expert_axis(entry.axis);
  });
  if (first == placement.end() || first->kind != PlacementKind::Sharded) return placement;
  const bool alike =
      std::all_of(mesh.expert_axes.begin(), mesh.expert_axes.end(), [&](const MeshAxis& axis) {
        const AxisPlacement* entry = entry_over(placement, axis.name);
        return entry != nullptr && entry->kind == first->kind && entry->dim == first->dim;
      });
  return alike ? with_dense_axes(placement, *first, mesh) : placement;
}

std::vector<Placement> result_placements(const Call& call, const Mesh& mesh) {
  std::vector<Placement> operands;
  for (const TensorType& type : call.operands) {
    operands.push_back(by_dense_axes(type.placement, mesh));
  }
  // Sums over what each rank stores: it does not matter how that is distributed.
  if (!mesh.expert_axes.empty() && sharding_rule(call).operands.at(0).added) {
    for (Placement& placement : operands) placement = distributed_by_dense_axes(placement, mesh);
  }
  return propagate(call, operands);
}

bool is_linear(const OpDef& op) {
  return op.traits.linear;
}

bool is_bilinear(const Call& call) {
  const auto factors = std::count_if(call.operands.begin(), call.operands.end(),
                                     [](const auto& type) { return is_floating(type.dtype); });
  return call.op->traits.bilinear && factors == 2;
}

}  // namespace weft

#include "passes/dim_names.h"

#include <algorithm>
#include <map>

#include "graph/dims.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/sharding.h"
#include "graph/sources.h"
#include "graph/update.h"

namespace weft {

namespace {

std::vector<std::string> plain_names(const std::vector<std::string>& dims) {
  std::vector<std::string> names;
  for (const std::string& dim : dims) names.emplace_back(dims::name_of(dim));
  return names;
}

// rng has one dim and may be as long as the batch, so the number of dims has to match as well.
bool is_batch(const Shape& shape, const Shape& inputs_like) {
  return !inputs_like.empty() && shape.size() >= inputs_like.size() && shape[0] == inputs_like[0];
}

// The gradient of one micro-batch, or nullptr.
const Value* gradient_of(const Graph& graph, const Node& param) {
  const Node* update = update_of(*param.result());
  const Value* grad = update != nullptr
                          ? update->operand("g")
                          : graph.find_output({OutputRole::Gradient, source_name(param)});
  while (grad != nullptr && grad->def->op == &kAccumulate) grad = grad->def->operand("g");
  return grad;
}

// Heads that are repeated are heads.
std::vector<std::string> with_heads(std::vector<std::string> names) {
  std::replace(names.begin(), names.end(), std::string(dims::kHeadsToRepeat),
               std::string(dims::kHeads));
  return names;
}

}  // namespace

DimNames::DimNames(const Graph& graph, const Shape& inputs_like, const NamingOptions& options)
    : options_(options) {
  std::map<std::string, Names> params;
  for (const auto& node : graph.order()) {
    if (node->op != &kParam && node->op != &kInput) continue;
    const Value& value = *node->result();
    Names names = plain_names(dim_names(*node));
    names.resize(value.type.shape.size());
    if (node->op == &kParam) {
      weights_.insert(&value);
      params[source_name(*node)] = names;
      if (const Value* gradient = gradient_of(graph, *node)) name_gradient(gradient, names);
    } else if (dim_names(*node).empty() && is_batch(value.type.shape, inputs_like)) {
      names[0] = dims::kBatch;
    }
    names_[&value] = std::move(names);
  }
  for (const auto& node : graph.order()) {
    if (node->op != &kState || state_key(*node).role != StateRole::LowCopy) continue;
    weights_.insert(node->result());
    names_[node->result()] = params[state_key(*node).owner];
  }
}

// What is added up to a gradient, or cast to it, is named like it; so is the gradient of a weight
// whose heads are repeated, but for these.
void DimNames::name_gradient(const Value* gradient, const Names& names) {
  if (!gradients_.insert(gradient).second) return;
  names_[gradient] = names;
  const Node& def = *gradient->def;
  if (def.op == &kRepeatKvGrad) {
    name_gradient(def.operand("dy"), with_heads(names));
    return;
  }
  if (def.op != &kAdd && def.op != &kAddInPlace && def.op != &kCast) return;
  for (const Value* part : def.operands) name_gradient(part, names);
}

void DimNames::name_results(const Node& node) {
  const RuleDims dims = rule_dims(node.call());
  const auto name_of = [&](const RuleDim& dim) -> std::string {
    if (!dim.counted.empty()) return std::string(dims::kSources);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const auto at = std::find(dims.operands[i].begin(), dims.operands[i].end(), dim);
      const auto known = names_.find(node.operands[i]);
      if (at == dims.operands[i].end() || known == names_.end()) continue;
      const std::string& name =
          known->second.at(static_cast<size_t>(at - dims.operands[i].begin()));
      if (!name.empty()) return name;
    }
    return "";
  };
  const bool repeats = node.op == &kRepeatKv;
  const bool of_weight = !node.operands.empty() && (node.op->traits.elementwise || repeats) &&
                         std::all_of(node.operands.begin(), node.operands.end(),
                                     [&](const Value* value) { return is_weight(*value); });
  for (const auto& value : node.results) {
    if (of_weight) weights_.insert(value.get());
    if (gradients_.contains(value.get())) continue;
    Names& names = names_[value.get()];
    names.clear();
    for (const RuleDim& dim : dims.results[value->index]) names.push_back(name_of(dim));
    if (repeats) names = with_heads(names_[node.operand("w")]);
  }
}

int64_t DimNames::find(const Value& value, std::string_view name) const {
  const auto known = names_.find(&value);
  if (known == names_.end()) return -1;
  const auto found = std::find(known->second.begin(), known->second.end(), name);
  return found == known->second.end() ? -1 : found - known->second.begin();
}

// Without names, nothing says that a value should be full, such as a count of tokens.
bool DimNames::has_names(const Value& value) const {
  const auto known = names_.find(&value);
  if (known == names_.end() || known->second.empty()) return true;
  return std::any_of(known->second.begin(), known->second.end(),
                     [](const std::string& name) { return !name.empty(); });
}

bool DimNames::has_expert_axes(const Value& value) const {
  return options_.shares_experts && (has_sources(value) || find(value, dims::kExperts) >= 0);
}

bool DimNames::has_sources(const Value& value) const {
  return find(value, dims::kSources) >= 0;
}

bool DimNames::is_placed_by(const Value& value, std::string_view axis) const {
  if (axis == names::kReplicateAxis) return true;
  const bool is_expert_axis = axis == names::kExpertAxis || axis == names::kExpertDataAxis;
  return is_expert_axis == has_expert_axes(value);
}

bool DimNames::divides_sources(std::string_view axis) const {
  if (axis == names::kTensorAxis) return options_.shares_experts;
  return axis == names::kContextAxis || options_.shards_batch;
}

void DimNames::name_like(const Value& moved, const Value& value) {
  const auto known = names_.find(&value);
  if (known == names_.end()) return;
  const Names names = known->second;
  names_[&moved] = names;
}

NamedPlacement DimNames::placement(const Value& value, std::string_view axis) const {
  using Kind = NamedPlacement::Kind;
  if (!is_placed_by(value, axis)) return {};
  const bool is_stored = is_weight(value) || is_gradient(value);
  const Kind otherwise = is_stored || has_names(value) ? Kind::Full : Kind::Open;
  const auto first_of = [&](std::initializer_list<std::string_view> names) -> NamedPlacement {
    for (const std::string_view name : names) {
      if (const int64_t dim = find(value, name); dim >= 0) return {Kind::Sharded, dim};
    }
    return {otherwise};
  };
  if (axis == names::kExpertAxis) return first_of({dims::kExperts, dims::kSources});
  if (axis == names::kExpertDataAxis) return first_of({dims::kSources});
  if (axis == names::kContextAxis) return first_of({dims::kSequence, dims::kSources});
  if (axis != names::kTensorAxis) {
    return options_.shards_batch ? first_of({dims::kBatch, dims::kSources}) : NamedPlacement{};
  }
  for (const std::string_view name : {dims::kHeads, dims::kFfn, dims::kVocab}) {
    if (find(value, name) >= 0) return first_of({name});
  }
  // A stream value has an embed or latent dim and none of those above.
  if (find(value, dims::kEmbed) < 0 && find(value, dims::kLatent) < 0) return {Kind::Open};
  return options_.shards_sequence && !is_stored ? first_of({dims::kSequence}) : NamedPlacement{};
}

}  // namespace weft

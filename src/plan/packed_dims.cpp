#include "plan/packed_dims.h"

#include "graph/comm_cost.h"
#include "graph/ops/ops.h"
#include "graph/sharding.h"
#include "graph/sources.h"
#include "graph/update.h"

namespace weft {

namespace {

std::vector<int64_t> parts_of(const ShardingTerm& term, size_t rank, size_t dim) {
  const size_t leading = rank - std::min(rank, term.dims.size());
  return dim < leading ? std::vector<int64_t>() : term.parts.at(dim - leading);
}

}  // namespace

PackedDims::PackedDims(const Graph& graph, const std::map<std::string, DimParts>& params) {
  for (const auto& node : graph.order()) {
    const OpDef& op = *node->op;
    if (&op == &kParam) {
      const auto found = params.find(source_name(*node));
      if (found != params.end()) parts_[node->result()] = found->second;
    } else if (is_gather(op) && is_flat_collective(*node)) {
      follow_gather(*node, params);
    } else if (op.traits.collective || op.traits.places) {
      for (const auto& value : node->results) {
        if (value->index < node->operands.size()) {
          parts_[value.get()] = of(*node->operands[value->index]);
        }
      }
    } else if (!op.sharding.empty() || op.sharding_of != nullptr) {
      follow_rule(*node);
    }
  }
}

DimParts PackedDims::of(const Value& value) const {
  const auto found = parts_.find(&value);
  return found == parts_.end() ? DimParts() : found->second;
}

void PackedDims::follow_gather(const Node& node, const std::map<std::string, DimParts>& params) {
  const Node* bucket = gathered_storage(node);
  if (bucket == nullptr || bucket->op != &kBucket) return;
  const std::vector<std::string> members = stored_params(*bucket);
  for (size_t i = 0; i < std::min(members.size(), node.results.size()); ++i) {
    const auto found = params.find(members[i]);
    if (found != params.end()) parts_[node.result(i)] = found->second;
  }
}

// A dim has the parts of an operand's dim of the same letter, size and parts in the rule, else
// those of the rule.
void PackedDims::follow_rule(const Node& node) {
  const Call call = node.call();
  const RuleDims dims = rule_dims(call);
  const ShardingRule rule = sharding_rule(call);
  for (const auto& value : node.results) {
    const Shape& shape = value->type.shape;
    DimParts parts(shape.size());
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      const RuleDim& letter = dims.results[value->index][dim];
      for (size_t i = 0; i < node.operands.size() && parts[dim].empty(); ++i) {
        const int64_t at = find_dim(dims.operands[i], letter);
        const DimParts known = of(*node.operands[i]);
        if (at < 0 || known.empty()) continue;
        const auto from = static_cast<size_t>(at);
        const Shape& given = node.operands[i]->type.shape;
        const bool alike = parts_of(rule.operands[i], given.size(), from) ==
                           parts_of(rule.results[value->index], shape.size(), dim);
        if (alike && given[from] == shape[dim]) parts[dim] = known[from];
      }
      if (parts[dim].empty()) parts[dim] = parts_of(rule.results[value->index], shape.size(), dim);
    }
    parts_[value.get()] = std::move(parts);
  }
}

}  // namespace weft

// A source has as many slots for each destination as its tokens can need: all of them may choose as
// many experts there as they choose, or as there are. A limit may be lower.
#include "passes/expert_rows.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/ops.h"

namespace weft {

namespace {

bool has_attr(const Node& node, std::string_view name) {
  const auto& attrs = node.op->parsed().attrs;
  return std::any_of(attrs.begin(), attrs.end(),
                     [&](const AttrSpec& attr) { return attr.name == name; });
}

// The node that decides where the rows of this one lie, or nullptr.
const Node* route_of(const Node& node) {
  if (node.op == &kRoute) return &node;
  for (const Value* operand : node.operands) {
    if (operand->def->op == &kRoute) return operand->def;
  }
  return nullptr;
}

}  // namespace

void ExpertRows::resize(Node* node) {
  const bool makes_rows = has_attr(*node, "slots"), computes = has_attr(*node, "fill");
  if (!makes_rows && !computes) return;
  const Node* route = route_of(*node);
  if (route == nullptr) return;
  const Shape& index = route->operand("index")->type.shape;
  const int64_t choices = index.back();
  const int64_t tokens = row_count(index) / sources_;
  const int64_t experts = std::get<int64_t>(route->attr("experts")) / parts_;
  int64_t slots = tokens * std::min(choices, experts);
  if (capacity_ > 0) {
    const double even = static_cast<double>(tokens * choices) / static_cast<double>(parts_);
    slots = std::min(slots, static_cast<int64_t>(std::ceil(capacity_ * even)));
  }
  if (makes_rows) {
    graph_.set_attr(node, "sources", sources_);
    graph_.set_attr(node, "parts", parts_);
    graph_.set_attr(node, "slots", slots);
  }
  if (!computes) return;
  const auto routed = static_cast<double>(tokens * choices);
  graph_.set_attr(node, "fill", std::min(1.0, routed / static_cast<double>(parts_ * slots)));
}

}  // namespace weft

// Old nodes are erased from the last to the first, so that none is erased before its readers.
#include "passes/bucket_scope.h"

#include <algorithm>

namespace weft {

Node* BucketScope::first(const std::vector<Node*>& nodes) const {
  return *std::min_element(nodes.begin(), nodes.end(),
                           [&](const Node* a, const Node* b) { return is_before(a, b); });
}

Node* BucketScope::last(const std::vector<Node*>& nodes) const {
  return *std::max_element(nodes.begin(), nodes.end(),
                           [&](const Node* a, const Node* b) { return is_before(a, b); });
}

bool BucketScope::is_before(const Node* one, const Node* other) const {
  return position_.at(one) < position_.at(other);
}

void BucketScope::erase_in_the_end(const std::vector<Node*>& nodes) {
  old_.insert(old_.end(), nodes.begin(), nodes.end());
}

void BucketScope::replace(const std::vector<Node*>& nodes, Node* merged) {
  merged->recomputed = nodes[0]->recomputed;
  for (size_t i = 0; i < merged->results.size(); ++i) {
    for (const Node* node : nodes) merged_[node->result(i)] = merged->result(i);
    name_in_the_end(merged->result(i), nodes[0]->result(i)->name);
  }
  erase_in_the_end(nodes);
}

Value* BucketScope::find_merged(const Value* value) const {
  const auto found = merged_.find(value);
  return found == merged_.end() ? nullptr : found->second;
}

void BucketScope::finish() {
  std::sort(old_.begin(), old_.end(),
            [&](const Node* a, const Node* b) { return is_before(b, a); });
  for (Node* node : old_) graph_.erase(node);
  for (const auto& [value, name] : names_) graph_.rename(value, name);
}

}  // namespace weft

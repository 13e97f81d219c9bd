// An entry is "bucket=module"; a start serves it if it transfers a parameter of the bucket.
#include "passes/overlap_requests.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/derived.h"
#include "graph/comm_cost.h"
#include "graph/module_path.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"
#include "graph/update.h"

namespace weft {

bool forwards(const Node& node) {
  return node.op->traits.collective || node.op == &kAccumulate;
}

namespace {

bool is_under(std::string_view path, std::string_view module) {
  return match_module(module, path).has_value();
}

// The parameter or bucket whose gradient is reduced, or nullptr. Follows nodes that only forward
// the gradient, down to the update.
const Node* reduced_storage(const Node& start) {
  const Node* node = &start;
  while (node != nullptr && !node->op->traits.update) {
    const Node* next = nullptr;
    for (const auto& result : node->results) {
      for (const Node* user : result->users) {
        if (forwards(*user) || user->op->traits.update) next = user;
      }
    }
    node = next;
  }
  return node == nullptr ? nullptr : node->operand("w")->def;
}

// Names of the parameters that a collective gathers or reduces.
std::vector<std::string> members_of(const Node& start) {
  const Node* storage = is_gather(*start.op) ? gathered_storage(start) : reduced_storage(start);
  const bool known = storage != nullptr && (storage->op == &kBucket || storage->op == &kParam);
  return known ? stored_params(*storage) : std::vector<std::string>{};
}

bool serves(const Node& start, const std::string& bucket) {
  const std::vector<std::string> members = members_of(start);
  return std::any_of(members.begin(), members.end(),
                     [&](const std::string& member) { return is_under(member, bucket); });
}

ComputeRange range_of(std::span<Node* const> order, const std::string& module, Phase phase) {
  ComputeRange range{.begin = static_cast<int64_t>(order.size()), .end = 0};
  for (size_t k = 0; k < order.size(); ++k) {
    const Node& node = *order[k];
    const bool computes = !node.op->traits.collective && !node.op->traits.source;
    if (!computes || node.phase != phase || !is_under(node.path, module)) continue;
    range.begin = std::min(range.begin, static_cast<int64_t>(k));
    range.end = static_cast<int64_t>(k) + 1;
  }
  return range;
}

}  // namespace

OverlapRequests read_overlap_requests(std::span<Node* const> order, const Config& config) {
  OverlapRequests requests;
  for (const std::string& entry : config.compile.overlap_with) {
    const size_t equals = entry.find('=');
    const std::string bucket(trim(std::string_view(entry).substr(0, equals)));
    const std::string module(trim(std::string_view(entry).substr(equals + 1)));
    const std::string subject = describe_key(config, "compile.overlap_with");
    check_module_pattern(bucket, subject);
    check_module_pattern(module, subject);
    bool has_bucket = false;
    bool has_module = false;
    for (const Node* node : order) {
      if (!node->op->traits.collective) has_module |= is_under(node->path, module);
      if (!is_start(*node->op) || !serves(*node, bucket)) continue;
      has_bucket = true;
      requests[node] = range_of(order, module, node->phase);
    }
    USER_CHECK(has_bucket, subject, ": no bucket contains parameters of \"", bucket, "\"");
    USER_CHECK(has_module, subject, ": there is no module \"", module, "\"");
  }
  return requests;
}

}  // namespace weft

// Roots and offsets of values.
#include "plan/homes.h"

#include "base/error.h"
#include "graph/flat.h"

namespace weft {

namespace {

std::vector<Shape> shapes_of(const std::vector<Value*>& values) {
  std::vector<Shape> shapes;
  for (const Value* value : values) shapes.push_back(value->type.shape);
  return shapes;
}

}  // namespace

std::string collective_name(const Node& node) {
  std::string name(node.op->name());
  return is_start(node) ? name.substr(0, name.size() - 6) : name;
}

bool is_all_gather(const Node& node) {
  return collective_name(node) == "all_gather";
}

bool is_start(const Node& node) {
  return node.op->traits.collective && node.op->name().ends_with("_start");
}

std::string bucket_name(const std::vector<std::string>& members) {
  return members.size() == 1 ? members[0] : cat(members.at(0), "+", members.size() - 1);
}

Homes::Homes(const Graph& graph) {
  for (const auto& node : graph.order()) add_results(*node, graph.mesh());
  for (const auto& node : graph.order()) {
    const std::string name = collective_name(*node);
    if (name == "reduce_scatter" || (name == "all_reduce" && node->operands.size() > 1)) {
      join_operands(*node);
    }
  }
}

int64_t Homes::bytes(const Value* root, int64_t own) const {
  const auto group = groups_.find(root);
  return group == groups_.end() ? own : group->second;
}

void Homes::add_results(const Node& node, const Mesh& mesh) {
  const std::vector<int> overwritten = node.op->overwrites.empty()
                                           ? std::vector<int>(node.results.size(), -1)
                                           : overwritten_operands(node.call());
  const bool gathers = is_all_gather(node);
  std::vector<int64_t> offsets(node.results.size(), 0);
  if (gathers) {
    std::vector<Shape> shapes;
    for (const auto& result : node.results) shapes.push_back(result->type.shape);
    offsets = flat_offsets(shapes);
    // Every rank's slot in full, so that the library can gather in place.
    const std::string& axis = std::get<std::string>(node.attr("axis"));
    groups_[node.result()] = mesh.axis_size(axis) *
                             count(local_shape(node.operands.at(0)->type, mesh)) *
                             dtype_bytes(node.result()->type.dtype);
  }
  for (size_t i = 0; i < node.results.size(); ++i) {
    const Value* value = node.result(i);
    Home home{value, 0};
    if (gathers) home = {node.result(), offsets[i] * dtype_bytes(value->type.dtype)};
    if (overwritten[i] >= 0)
      home = homes_.at(node.operands.at(static_cast<size_t>(overwritten[i])));
    homes_[value] = home;
    residents_[home.root].push_back(value);
  }
}

void Homes::join_operands(const Node& node) {
  const std::vector<Shape> shapes = shapes_of(node.operands);
  const std::vector<int64_t> offsets = flat_offsets(shapes);
  const int64_t element = dtype_bytes(node.operands.at(0)->type.dtype);
  const Value* bucket = homes_.at(node.operands.at(0)).root;
  // A second reduction of the same values, over another axis, finds them together already.
  if (groups_.contains(bucket) && node.operands.size() > 1 &&
      homes_.at(node.operands.at(1)).root == bucket) {
    return;
  }
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const Value* root = homes_.at(node.operands[i]).root;
    CHECK(!groups_.contains(root), "%", node.operands[i]->name, " lies in two buckets");
    std::vector<const Value*> residents = residents_.at(root);
    for (const Value* resident : residents) {
      homes_[resident] = {bucket, offsets[i] * element};
      if (root != bucket) residents_[bucket].push_back(resident);
    }
  }
  groups_[bucket] = flat_size(shapes) * element;
}

}  // namespace weft

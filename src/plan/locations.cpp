// Computes the roots and offsets of values.
#include "plan/locations.h"

#include "base/error.h"
#include "graph/comm_cost.h"
#include "graph/flat.h"

namespace weft {

namespace {

std::vector<Shape> shapes_of(const std::vector<Value*>& values, const Mesh& mesh) {
  std::vector<Shape> shapes;
  for (const Value* value : values) shapes.push_back(local_shape(value->type, mesh));
  return shapes;
}

// Bytes of a flat buffer with a full slot for every rank, so that a library can work on it in
// place.
int64_t slots_bytes(const Node& collective, const Value& shard, DType dtype, const Mesh& mesh) {
  const std::string& axis = std::get<std::string>(collective.attr("axis"));
  return mesh.axis_size(axis) * count(local_shape(shard.type, mesh)) * dtype_bytes(dtype);
}

int64_t gathered_bytes(const Node& gather, const Mesh& mesh) {
  return slots_bytes(gather, *gather.operand("x"), gather.result()->type.dtype, mesh);
}

int64_t reduced_bytes(const Node& reduction, const Mesh& mesh) {
  const DType dtype = reduction.operands.front()->type.dtype;
  return reduction.op->collective->sharded
             ? slots_bytes(reduction, *reduction.result(), dtype, mesh)
             : flat_size(shapes_of(reduction.operands, mesh)) * dtype_bytes(dtype);
}

}  // namespace

Locations::Locations(const Graph& graph) {
  for (const auto& node : graph.order()) add_results(*node, graph.mesh());
  for (const auto& node : graph.order()) {
    if (!is_flat_collective(*node)) continue;
    const bool several = node->operands.size() > 1;
    if (is_gather(*node->op)) {
      if (several) group_targets(*node, graph.mesh());
    } else if (several || node->op->collective->sharded) {
      group_operands(*node, graph.mesh());
    }
  }
}

void Locations::shift(const Value* root, int64_t offset) {
  CHECK(!groups_.contains(root), "%", root->name, " cannot move: it shares its buffer");
  for (const Value* resident : residents_.at(root)) locations_[resident].offset = offset;
}

int64_t Locations::bytes(const Value* root, int64_t own) const {
  const auto group = groups_.find(root);
  return group == groups_.end() ? own : group->second;
}

void Locations::add_results(const Node& node, const Mesh& mesh) {
  const std::vector<int> overwritten = node.op->overwrites.empty()
                                           ? std::vector<int>(node.results.size(), -1)
                                           : overwritten_operands(node.call());
  const bool gathers = is_gather(*node.op) && is_flat_collective(node);
  std::vector<int64_t> offsets(node.results.size(), 0);
  if (gathers) {
    std::vector<Shape> shapes;
    for (const auto& result : node.results) shapes.push_back(local_shape(result->type, mesh));
    offsets = flat_offsets(shapes);
    if (node.operands.size() == 1) groups_[node.result()] = gathered_bytes(node, mesh);
  }
  for (size_t i = 0; i < node.results.size(); ++i) {
    const Value* value = node.result(i);
    Location location{value, 0};
    if (gathers) location = {node.result(), offsets[i] * dtype_bytes(value->type.dtype)};
    if (overwritten[i] >= 0)
      location = locations_.at(node.operands.at(static_cast<size_t>(overwritten[i])));
    locations_[value] = location;
    residents_[location.root].push_back(value);
  }
}

void Locations::group_operands(const Node& node, const Mesh& mesh) {
  const Value* bucket = locations_.at(node.operands.front()).root;
  // A second reduction of the same values, over another axis, finds them already grouped.
  const bool grouped =
      node.operands.size() > 1 && locations_.at(node.operands.back()).root == bucket;
  if (groups_.contains(bucket) && grouped) return;
  group(node.operands, reduced_bytes(node, mesh), mesh);
}

// A gather into existing tensors: they share one buffer.
void Locations::group_targets(const Node& node, const Mesh& mesh) {
  const std::span<Value* const> targets = node.variadic("into");
  group({targets.begin(), targets.end()}, gathered_bytes(node, mesh), mesh);
}

void Locations::group(const std::vector<Value*>& values, int64_t bytes, const Mesh& mesh) {
  const std::vector<int64_t> offsets = flat_offsets(shapes_of(values, mesh));
  const int64_t element = dtype_bytes(values.at(0)->type.dtype);
  const Value* bucket = locations_.at(values[0]).root;
  for (size_t i = 0; i < values.size(); ++i) {
    const Value* root = locations_.at(values[i]).root;
    CHECK(!groups_.contains(root), "%", values[i]->name, " is in two buckets");
    std::vector<const Value*> residents = residents_.at(root);
    for (const Value* resident : residents) {
      locations_[resident] = {bucket, offsets[i] * element};
      if (root != bucket) residents_[bucket].push_back(resident);
    }
  }
  groups_[bucket] = bytes;
}

}  // namespace weft

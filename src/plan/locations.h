// Assigns each value a location before buffers exist: an offset in the buffer of its root value. A
// result that overwrites an operand has the location of that operand. The results of a flat gather
// share one buffer, and so do the operands of a flat reduction: kernels write straight into it, so
// nothing is packed or unpacked. Tensors that a gather overwrites are part of its buffer as well.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace weft {

struct Location {
  const Value* root = nullptr;
  int64_t offset = 0;  // bytes
};

class Locations {
 public:
  // Considers all nodes of the graph, even those that a program leaves out.
  explicit Locations(const Graph& graph);

  const Location& at(const Value* value) const { return locations_.at(value); }
  // Bytes of the root's buffer: those of its group, or `own` if it has none.
  int64_t bytes(const Value* root, int64_t own) const;
  // Whether several values share the root's buffer at different offsets.
  bool is_group(const Value* root) const { return groups_.contains(root); }
  // Moves all values of a root without a group to an offset in the buffer assigned to it.
  void shift(const Value* root, int64_t offset);

 private:
  void add_results(const Node& node, const Mesh& mesh);
  void group_operands(const Node& node, const Mesh& mesh);
  void group_targets(const Node& node, const Mesh& mesh);
  // Places values one after the other in the buffer of the first.
  void group(const std::vector<Value*>& values, int64_t bytes, const Mesh& mesh);

  std::unordered_map<const Value*, Location> locations_;
  std::unordered_map<const Value*, std::vector<const Value*>> residents_;  // by root
  std::unordered_map<const Value*, int64_t> groups_;                       // bytes, by root
};

}  // namespace weft

// Where values lie before any buffer exists: each in a buffer named by its root value, at an
// offset. A result that overwrites an operand lies where the operand does. The results of a gather
// are parts of one gathered buffer, and the operands of a reduction parts of one bucket: whoever
// computes them writes straight into it, so nothing is packed or unpacked. Tensors that a gather
// writes over are parts of its buffer in the same way.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace weft {

struct Home {
  const Value* root = nullptr;
  int64_t offset = 0;  // bytes
};

class Homes {
 public:
  // Looks at all nodes of the graph, whatever a program keeps of them.
  explicit Homes(const Graph& graph);

  const Home& at(const Value* value) const { return homes_.at(value); }
  // Bytes of the root's buffer: those of the group it stands for, or else `own`.
  int64_t bytes(const Value* root, int64_t own) const;
  // Whether several values share the root's buffer side by side.
  bool is_group(const Value* root) const { return groups_.contains(root); }
  // Moves all values of a root that stands alone to an offset of the buffer that it is given.
  void shift(const Value* root, int64_t offset);

 private:
  void add_results(const Node& node, const Mesh& mesh);
  void join_operands(const Node& node, const Mesh& mesh);
  void join_targets(const Node& node, const Mesh& mesh);
  // Lays values side by side in one buffer, that of the first.
  void join(const std::vector<Value*>& values, int64_t bytes);

  std::unordered_map<const Value*, Home> homes_;
  std::unordered_map<const Value*, std::vector<const Value*>> residents_;  // by root
  std::unordered_map<const Value*, int64_t> groups_;                       // bytes, by root
};

}  // namespace weft

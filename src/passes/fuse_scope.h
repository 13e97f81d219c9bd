// The graph as the fusions see it: they ask what runs before what, and replace several nodes by
// one.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace weft {

class FuseScope {
 public:
  explicit FuseScope(Graph& graph);

  bool is_before(const Node* one, const Node* other) const;
  // The only reader of a value that is not an output, or nullptr.
  Node* only_reader(const Value* value) const;

  void move_before(Node* node, Node* before);

  // What a fusion makes of several nodes.
  struct Fused {
    const OpDef* op = nullptr;
    std::vector<Value*> operands;
    Attrs attrs;
    std::vector<Value*> results;  // replaced by the results of the op; nullptr: there was none
    std::vector<Node*> parts;     // erased; readers before what they read
  };
  // Inserts the fused op in place of `at`, which is one of the parts.
  Node* fuse(Node* at, Fused fused);

 private:
  Graph& graph_;
  std::unordered_map<const Node*, int64_t> position_;
  std::unordered_set<const Value*> outputs_;
};

}  // namespace weft

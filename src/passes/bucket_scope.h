// The graph as the merges of lanes see it. Old nodes stay until the end, because later merges still
// read them; new values take over their names then.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "passes/param_lane.h"

namespace weft {

using Lanes = std::vector<const ParamLane*>;  // of one bucket

class BucketScope {
 public:
  explicit BucketScope(Graph& graph) : graph_(graph), position_(positions(graph)) {}

  Graph& graph() { return graph_; }

  // By the order before any merge.
  Node* first(const std::vector<Node*>& nodes) const;
  Node* last(const std::vector<Node*>& nodes) const;
  bool is_before(const Node* one, const Node* other) const;
  bool is_old(const Node* node) const { return position_.contains(node); }

  // Ends the name of a new value as long as the value that it replaces exists.
  static constexpr std::string_view kTemporary = ".merged";
  static std::string temporary(const std::string& name) { return name + std::string(kTemporary); }

  // The new value gets the name once the old nodes are erased.
  void name_in_the_end(Value* value, const std::string& name) { names_.push_back({value, name}); }
  void erase_in_the_end(const std::vector<Node*>& nodes);
  // Makes the results of `merged` stand for those of `nodes`, which are erased in the end.
  void replace(const std::vector<Node*>& nodes, Node* merged);
  // The value that stands for this one; the second returns nullptr if it was not merged.
  Value* merged(const Value* value) const { return merged_.at(value); }
  Value* find_merged(const Value* value) const;

  void finish();

 private:
  struct Name {
    Value* value;
    std::string name;
  };

  Graph& graph_;
  const std::unordered_map<const Node*, int64_t> position_;
  std::unordered_map<const Value*, Value*> merged_;
  std::vector<Node*> old_;
  std::vector<Name> names_;
};

}  // namespace weft

// Inserts the nodes that change the placement of a value; shared by place and shard_params. One
// node serves all readers of a value that need the same placement.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "graph/graph.h"

namespace weft {

// Inserts an all_reduce before `before` over the joint axis of all that `value` is partial over.
// Redirects all uses of the value to the reduced one and returns it. The value must be partial; the
// result is named after it with ".reduced" appended.
Value* all_reduce(Graph& graph, Value* value, Node* before, const NodeOptions& options);

// The input with this rank's number in the group along an axis, which may be a joint one; it is
// added at the start of the graph if there is none.
Value* coordinate_input(Graph& graph, const std::string& axis);

class Redistribution {
 public:
  explicit Redistribution(Graph& graph) : graph_(graph) {}

  // Sums a value that is partial over the axis, directly after its definition and for all its
  // readers: into shards along `dim`, or in full.
  Value* reduce(Value* value, const std::string& axis, std::optional<int64_t> dim);

  // Sums a value over every axis that it is partial over, in full.
  Value* reduce_all(Value* value);

  // The value sharded along `dim` over the axis, or in full, for a reader: gathers it, takes the
  // rank's shard, or moves its shards to another dim. It must not be partial over the axis.
  Value* move(Value* value, const std::string& axis, std::optional<int64_t> dim, Node* reader);

  // Moves shards that change alike together, once all are inserted: an all_to_all joins the one
  // before it if its tensors exist there. One of rows gets their offsets.
  void finish_exchanges();

  // Collectives inserted so far.
  size_t reductions() const { return reductions_; }
  size_t gathers() const { return gathers_; }
  size_t exchanges() const { return exchanges_; }

 private:
  Value* gather(Value* value, const std::string& axis, Node* reader);
  Value* exchange(Value* value, const std::string& axis, int64_t dim, Node* reader);
  void merge_exchanges();
  Node* merge(Node* first, Node* second);
  Value* take(Value* value, const std::string& axis, int64_t dim, Node* reader);

  Graph& graph_;
  // By value, axis and dim; -1: in full.
  std::map<std::tuple<std::string, std::string, int64_t>, Value*> moved_;
  size_t reductions_ = 0;
  size_t gathers_ = 0;
  size_t exchanges_ = 0;
};

}  // namespace weft

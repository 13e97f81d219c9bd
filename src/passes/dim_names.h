// The names of the dims of every value, and the placements that they fix. Parameters and inputs are
// named by the model; the names of other values follow from the sharding rules of the ops.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"

namespace weft {

// What the names of a value say about its placement over one axis. Full: it is replicated. Open:
// they leave it to the op that computes the value.
struct NamedPlacement {
  enum class Kind { Sharded, Full, Open };
  Kind kind = Kind::Full;
  int64_t dim = 0;  // Sharded only
};

struct NamingOptions {
  bool shards_batch = true;      // over the data-parallel axes
  bool shards_sequence = false;  // of stream values over tp
  bool shares_experts = false;   // over ep; else they are sharded over tp along ffn
};

class DimNames {
 public:
  // `inputs_like` is the shape of the tokens: an input whose dims the graph does not name is
  // sharded like them if it begins with the same batch.
  DimNames(const Graph& graph, const Shape& inputs_like, const NamingOptions& options);

  // Names the results of a node from those of its operands.
  void name_results(const Node& node);

  NamedPlacement placement(const Value& value, std::string_view axis) const;
  bool shards_sequence() const { return options_.shards_sequence; }

  // Whether the value is placed over the axis at all: with expert axes, experts and their rows are
  // placed by these and by dp_replicate, all other values by the other axes.
  bool is_placed_by(const Value& value, std::string_view axis) const;
  // Whether it has a dim that counts the sources of rows.
  bool has_sources(const Value& value) const;
  // Whether the ranks along the axis, no expert axis, have different tokens for experts.
  bool divides_sources(std::string_view axis) const;
  // Names a value that only lies elsewhere.
  void name_like(const Value& moved, const Value& value);

  // Whether the value is a parameter in any dtype, and whether it is the gradient of one or a
  // contribution to it.
  bool is_weight(const Value& value) const { return weights_.contains(&value); }
  bool is_gradient(const Value& value) const { return gradients_.contains(&value); }

 private:
  using Names = std::vector<std::string>;

  void name_gradient(const Value* gradient, const Names& names);
  int64_t find(const Value& value, std::string_view name) const;
  bool has_names(const Value& value) const;
  bool has_expert_axes(const Value& value) const;

  NamingOptions options_;
  std::unordered_map<const Value*, Names> names_;
  std::unordered_set<const Value*> weights_;
  std::unordered_set<const Value*> gradients_;
};

}  // namespace weft

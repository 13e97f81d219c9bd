// Sharding rules: placements of an op's results when its operands are sharded. A rule is like an
// einsum, "...k, kn -> ...n": letters name dims, "..." the leading dims, an empty term is a scalar.
// A result is sharded along the dims it shares with an operand. If it lacks the sharded dim, it is
// a partial sum. Capital letters name dims that must not be sharded. A packed dim, "h(64|32|32)",
// has parts that are each sharded by themselves. A dim "g<bs>" has an entry for every shard of the
// dims b and s: it is sharded where they are. A term with "+" is any number of operands, each with
// its own dims, whose sums are added.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace weft {

// The dims of one operand or result.
struct ShardingTerm {
  bool leading = false;                          // begins with "..."
  bool added = false;                            // ends with "+"
  std::string dims;                              // one letter each, after the leading ones
  std::vector<std::vector<int64_t>> parts = {};  // by letter; empty: not packed
  std::vector<std::string> counted = {};         // by letter: the dims whose shards it counts
  bool operator==(const ShardingTerm&) const = default;
};

struct ShardingRule {
  std::vector<ShardingTerm> operands;
  std::vector<ShardingTerm> results;
};

// Throws InternalError for text that is not a rule.
ShardingRule parse_sharding(std::string_view text);

// The rule of this call's op with one term per operand and result: those of absent optional
// operands are left out, that of a variadic one is repeated.
ShardingRule sharding_rule(const Call& call);

// A dim as a rule names it: a letter, or the index of a leading dim.
struct RuleDim {
  char letter = '.';
  int64_t index = 0;         // of a leading dim
  std::string counted = {};  // the letters of the dims whose shards it counts
  bool may_be_sharded() const { return letter < 'A' || letter > 'Z'; }
  // Whether sharding `dim` shards this one: it is the same, or one whose shards this one counts.
  bool follows(const RuleDim& dim) const;
  bool operator==(const RuleDim&) const = default;
};

// The rule of a call, dim by dim.
struct RuleDims {
  std::vector<std::vector<RuleDim>> operands;
  std::vector<std::vector<RuleDim>> results;
};
RuleDims rule_dims(const Call& call);

// The place in a list of the dim that is sharded with `dim`; -1 if it is not there.
int64_t find_dim(const std::vector<RuleDim>& dims, const RuleDim& dim);

// Placements of the results for these operand placements; throws UserError "op: ..." naming the dim
// if the rule forbids them. F shards a "..." operand; P passes through linear ops, and through
// bilinear ones while the other operand is full.
std::vector<Placement> propagate(const Call& call, const std::vector<Placement>& operands);

// Same, with the placements in the operand types. What the expert axes of a mesh distribute over
// all their ranks is placed by its other axes.
std::vector<Placement> result_placements(const Call& call, const Mesh& mesh = {});

// The placement by the axes of the mesh other than its expert axes, if it is sharded along one dim
// over all of these; else the placement itself. Both hold the same elements on every rank.
Placement by_dense_axes(const Placement& placement, const Mesh& mesh);

// Whether partial sums of its operands pass through the op: all of them at once (linear), or one of
// them (bilinear, without a bias).
bool is_linear(const OpDef& op);
bool is_bilinear(const Call& call);

}  // namespace weft

// Sharding rules: placements of an op's results when its operands are sharded. A rule is like an
// einsum, "...k, kn -> ...n": letters name dims, "..." the leading dims, an empty term is a scalar.
// A result is sharded along the dims it shares with an operand. If it lacks the sharded dim, it is
// a partial sum. Capital letters name dims that must not be sharded. A term with "+" is any number
// of operands, each with its own dims, whose sums are added.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace weft {

// The dims of one operand or result.
struct ShardingTerm {
  bool leading = false;  // begins with "..."
  bool added = false;    // ends with "+"
  std::string dims;      // one letter each, after the leading ones
  bool operator==(const ShardingTerm&) const = default;
};

struct ShardingRule {
  std::vector<ShardingTerm> operands;
  std::vector<ShardingTerm> results;
};

// Throws InternalError for text that is not a rule.
ShardingRule parse_sharding(std::string_view text);

// The rule of this call's op with one term per operand: those of absent optional operands are left
// out, that of a variadic one is repeated.
ShardingRule sharding_rule(const Call& call);

// Placements of the results for these operand placements; throws UserError "op: ..." naming the dim
// if the rule forbids them. F shards a "..." operand; P passes through linear ops.
std::vector<Placement> propagate(const Call& call, const std::vector<Placement>& operands);

// Same, with the placements in the operand types.
std::vector<Placement> result_placements(const Call& call);

// Whether partial sums pass through the op.
bool is_linear(const OpDef& op);

}  // namespace weft

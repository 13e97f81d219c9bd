// Sharding rules: how the results of an op lie on the mesh when its operands are cut. A rule is
// like an einsum, "...k, kn -> ...n": letters name dims, "..." the leading ones, an empty term is a
// scalar. A dim that a result shares with an operand is cut like it; over a dim that a result lacks
// it is summed, so it is a partial sum. Capital letters name dims that must be whole. A term with
// "+" stands for any number of operands with dims of their own, whose sums are added up.
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

// The rule of this call's op, with a term for each of its operands: absent optional ones left out,
// the last one repeated for variadic ones.
ShardingRule sharding_rule(const Call& call);

// Placements of the results when the operands are placed so; throws UserError "op: ..." naming the
// dim when the rule forbids it. F is the cut of a "..." operand, P passes through linear ops.
std::vector<Placement> propagate(const Call& call, const std::vector<Placement>& operands);

// The same for operands placed as their types say.
std::vector<Placement> result_placements(const Call& call);

// Whether partial sums go through the op.
bool is_linear(const OpDef& op);

}  // namespace weft

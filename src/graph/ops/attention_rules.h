// Shared by the ops of attention: checks of packed heads, sharding by head, and cost.
#pragma once

#include <string>
#include <string_view>

#include "base/attention_heads.h"
#include "graph/ops/shapes.h"

namespace weft {

// Types derived from q, k and v.
struct AttentionTypes {
  TensorType y, lse;
};

// Positions of tokens within their documents: i32, one per row of x.
void require_positions(const Call& call, const TensorType& x);

// Checks an operand [batch,time,q|k|v].
AttentionHeads require_packed_heads(const Call& call, std::string_view operand);

// Checks an operand [batch,time,q] of an op that also has keys and values.
AttentionHeads require_query_heads(const Call& call, std::string_view operand);

// Checks dropout, scale and chunk, and the random state if it is present.
void require_options(const Call& call);

// The heads of a call, whichever operand has them.
AttentionHeads heads_of(const Call& call);

// Replaces p in the rule by the packed heads of q, k and v, and w by those of k and v: a rank that
// has a part of the heads has the same part of each.
std::string by_head(const Call& call, std::string_view rule);

// The numbers of heads are divided like the width of the operand that has them.
void localize_heads(const Call& call, Call& local);

// Matmuls over the causal half, of keys and of values.
struct AttentionMatmuls {
  double keys = 0, values = 0;
};
inline constexpr AttentionMatmuls kForwardMatmuls{.keys = 1, .values = 1};
inline constexpr AttentionMatmuls kBackwardMatmuls{.keys = 3, .values = 2};
Cost cost_attention(const Call& call, const AttentionMatmuls& matmuls);

}  // namespace weft

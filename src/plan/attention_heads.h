// What the kernels of an attention, or of its gradient, read from a call.
#pragma once

#include <cmath>

#include "base/attention_heads.h"
#include "graph/op.h"

namespace weft {

// The heads in rows of this width, which are packed q|k|v, or q.
inline AttentionHeads attention_heads(const Call& call, int64_t width, bool packed) {
  AttentionHeads heads{.q = call.int_attr("heads"), .kv = call.int_attr("kv_heads")};
  heads.value_dim = call.int_attr("value_dim");
  if (!packed) {
    heads.dim = width / heads.q;
  } else if (heads.value_dim == 0) {
    heads.dim = width / (heads.q + 2 * heads.kv);
  } else {
    heads.dim = (width - heads.v_width()) / (heads.q + heads.kv);
  }
  if (heads.value_dim == 0) heads.value_dim = heads.dim;
  return heads;
}

// What scores are multiplied by.
inline double attention_scale(const Call& call, int64_t head_dim) {
  const double scale = call.double_attr("scale");
  return scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

}  // namespace weft

// How heads lie in the rows of attention's operands: packed q|k|v, or q and k|v. Heads of v may be
// narrower or wider than those of q and k. CMakeLists.txt defines WEFT_HOST_DEVICE for host and
// device code.
#pragma once

#include <cstdint>

namespace weft {

struct AttentionHeads {
  int64_t q = 1, kv = 1;  // numbers of heads
  int64_t dim = 1;        // of a head of q or k
  int64_t value_dim = 1;  // of a head of v, and of the result

  WEFT_HOST_DEVICE constexpr int64_t group() const { return q / kv; }
  // The widths of rows.
  WEFT_HOST_DEVICE constexpr int64_t q_width() const { return q * dim; }
  WEFT_HOST_DEVICE constexpr int64_t k_width() const { return kv * dim; }
  WEFT_HOST_DEVICE constexpr int64_t v_width() const { return kv * value_dim; }
  WEFT_HOST_DEVICE constexpr int64_t kv_width() const { return k_width() + v_width(); }
  WEFT_HOST_DEVICE constexpr int64_t packed_width() const { return q_width() + kv_width(); }
  WEFT_HOST_DEVICE constexpr int64_t y_width() const { return q * value_dim; }
};

// How many earlier keys a query sees at this position of its document: all of them, or those of its
// chunk if `chunk` is not 0.
WEFT_HOST_DEVICE constexpr int64_t keys_before(int64_t position, int64_t chunk) {
  return chunk > 0 ? position % chunk : position;
}

}  // namespace weft

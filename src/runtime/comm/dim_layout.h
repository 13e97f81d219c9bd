// The geometry of shards along a dim of one tensor: [outer, dim, inner], of which each rank of a
// group has a range of the dim. Ranges have one length, the size of the dim over the ranks rounded
// up; where that does not divide, the last ones are shorter or empty, and shards are padded to it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "plan/kernel.h"

namespace weft {

class DimLayout {
 public:
  // Throws InternalError unless the shards of `ranks` ranks along the dim hold the full shape.
  DimLayout(const Shape& full, const Shape& shard, int64_t dim, int64_t ranks) : ranks_(ranks) {
    const auto at = static_cast<size_t>(dim);
    CHECK(dim >= 0 && at < full.size(), "dim ", dim, " of ", to_string(full));
    size_ = full[at];
    part_ = (size_ + ranks - 1) / ranks;
    for (size_t i = 0; i < full.size(); ++i) {
      if (i != at) (i < at ? outer_ : inner_) *= full[i];
    }
    Shape expected = full;
    expected[at] = part_;
    CHECK(shard == expected, "shards of ", to_string(shard), " of ", to_string(full), " along dim ",
          dim, " over ", ranks, " ranks");
  }
  DimLayout(const Tensor& full, const Tensor& shard, int64_t dim, int64_t ranks)
      : DimLayout(full.shape, shard.shape, dim, ranks) {}

  int64_t outer() const { return outer_; }
  int64_t size() const { return size_; }  // of the dim
  int64_t inner() const { return inner_; }
  int64_t part() const { return part_; }  // of the dim in a shard, with its padding
  // How much of the dim a rank's range holds.
  int64_t length(int64_t rank) const { return std::clamp<int64_t>(size_ - rank * part_, 0, part_); }
  // Where row `row` of the outer dims starts in a rank's range of the full tensor, and in a shard.
  int64_t in_full(int64_t row, int64_t rank) const {
    return (row * size_ + std::min(size_, rank * part_)) * inner_;
  }
  int64_t in_shard(int64_t row) const { return row * part_ * inner_; }
  int64_t shard_elements() const { return outer_ * part_ * inner_; }
  // Whether the shards, one after the other, are the full tensor.
  bool is_contiguous() const { return outer_ == 1 && size_ == part_ * ranks_; }

 private:
  int64_t ranks_ = 1;
  int64_t outer_ = 1;
  int64_t size_ = 1;
  int64_t inner_ = 1;
  int64_t part_ = 1;
};

}  // namespace weft

// The geometry of shards along a dim of one tensor: [outer, dim, inner], of which each rank of a
// group has one or two ranges of the dim (shard_ranges). Shards have one length, the size of the
// dim over the ranks rounded up; where that does not divide, the last ones are padded.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "plan/kernel.h"

namespace weft {

class DimLayout {
 public:
  // Throws InternalError unless the shards of `ranks` ranks along the dim hold the full shape.
  DimLayout(const Shape& full, const Shape& shard, int64_t dim, std::string_view axis,
            int64_t ranks) {
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
    for (int64_t rank = 0; rank < ranks; ++rank) {
      ranges_.push_back(shard_ranges(axis, size_, ranks, rank));
    }
  }
  DimLayout(const Tensor& full, const Tensor& shard, int64_t dim, std::string_view axis,
            int64_t ranks)
      : DimLayout(full.shape, shard.shape, dim, axis, ranks) {}

  int64_t outer() const { return outer_; }
  int64_t inner() const { return inner_; }
  int64_t part() const { return part_; }  // of the dim in a shard, with its padding
  const std::vector<DimRange>& ranges(int64_t rank) const {
    return ranges_.at(static_cast<size_t>(rank));
  }
  // How much of the dim a rank's shard holds.
  int64_t length(int64_t rank) const {
    int64_t length = 0;
    for (const DimRange& range : ranges(rank)) length += range.size;
    return length;
  }
  // Where row `row` of the outer dims has index `at` of the dim, in the full tensor and in a shard.
  int64_t in_full(int64_t row, int64_t at) const { return (row * size_ + at) * inner_; }
  int64_t in_shard(int64_t row, int64_t at) const { return (row * part_ + at) * inner_; }
  int64_t shard_elements() const { return outer_ * part_ * inner_; }
  // Whether a rank's shard without its padding is one range of memory in the full tensor.
  bool is_one_range() const { return outer_ == 1 && ranges_.front().size() == 1; }
  // Whether the shards, one after the other, are the full tensor.
  bool is_contiguous() const {
    return is_one_range() && size_ == part_ * static_cast<int64_t>(ranges_.size());
  }

  // Calls fn(begin in the full tensor, begin in the shard, elements) for every contiguous part of a
  // rank's shard.
  template <class Fn>
  void for_parts(int64_t rank, const Fn& fn) const {
    for (int64_t row = 0; row < outer_; ++row) {
      int64_t at = 0;
      for (const DimRange& range : ranges(rank)) {
        if (range.size > 0) {
          fn(in_full(row, range.begin), in_shard(row, at), range.size * inner_);
        }
        at += range.size;
      }
    }
  }

 private:
  int64_t outer_ = 1;
  int64_t size_ = 1;
  int64_t inner_ = 1;
  int64_t part_ = 1;
  std::vector<std::vector<DimRange>> ranges_;  // by rank
};

}  // namespace weft

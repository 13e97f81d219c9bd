#include "runtime/comm/transfer.h"

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

int64_t length_of(const std::vector<DimRange>& ranges) {
  int64_t length = 0;
  for (const DimRange& range : ranges) length += range.size;
  return length;
}

// The same box with as few and as long runs as possible.
CopyBox merged(CopyBox box) {
  const auto rows_touch = [&] {
    return box.rows == 1 || (box.from.row == box.run && box.to.row == box.run);
  };
  if (!rows_touch()) return box;
  box.run *= box.rows;
  box.rows = box.slices;
  box.from.row = box.from.slice;
  box.to.row = box.to.slice;
  box.slices = 1;
  if (!rows_touch()) return box;
  box.run *= box.rows;
  box.rows = 1;
  return box;
}

}  // namespace

AllToAll::AllToAll(const Shape& from, const Shape& to, const Dims& dims, std::string_view axis,
                   int64_t ranks)
    : from_is_low_(dims.from < dims.to) {
  const auto low = static_cast<size_t>(std::min(dims.from, dims.to));
  const auto high = static_cast<size_t>(std::max(dims.from, dims.to));
  CHECK(low != high && high < from.size() && from.size() == to.size(), "dims ", dims.from, " and ",
        dims.to, " of ", to_string(from));
  const int64_t sent = to[static_cast<size_t>(dims.from)];  // the full sizes of the two dims
  const int64_t got = from[static_cast<size_t>(dims.to)];
  part_ = (got + ranks - 1) / ranks;
  Shape expected_from = from, expected_to = from;
  expected_from[static_cast<size_t>(dims.from)] = (sent + ranks - 1) / ranks;
  expected_to[static_cast<size_t>(dims.from)] = sent;
  expected_to[static_cast<size_t>(dims.to)] = part_;
  CHECK(from == expected_from && to == expected_to, "shards ", to_string(from), " along dim ",
        dims.from, " to ", to_string(to), " along dim ", dims.to, " over ", ranks, " ranks");
  for (size_t i = 0; i < from.size(); ++i) {
    if (i != low && i != high) (i < low ? outer_ : i < high ? middle_ : inner_) *= from[i];
  }
  from_ = {from[low], from[high]};
  to_ = {to[low], to[high]};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    sent_.push_back(shard_ranges(axis, sent, ranks, rank));
    got_.push_back(shard_ranges(axis, got, ranks, rank));
  }
}

BoxSide AllToAll::side(const Sizes& sizes, int64_t low, int64_t high) const {
  const int64_t row = sizes.high * inner_;
  return {low * middle_ * row + high * inner_, row, sizes.low * middle_ * row};
}

std::vector<CopyBox> AllToAll::boxes(int64_t source, int64_t target) const {
  std::vector<CopyBox> boxes;
  int64_t in_source = 0;
  for (const DimRange& sent : sent_.at(static_cast<size_t>(source))) {
    int64_t in_target = 0;
    for (const DimRange& got : got_.at(static_cast<size_t>(target))) {
      CopyBox box{.slices = outer_};
      if (from_is_low_) {
        box.rows = sent.size * middle_;
        box.run = got.size * inner_;
        box.from = side(from_, in_source, got.begin);
        box.to = side(to_, sent.begin, in_target);
      } else {
        box.rows = got.size * middle_;
        box.run = sent.size * inner_;
        box.from = side(from_, got.begin, in_source);
        box.to = side(to_, in_target, sent.begin);
      }
      if (box.elements() > 0) boxes.push_back(merged(box));
      in_target += got.size;
    }
    in_source += sent.size;
  }
  return boxes;
}

bool AllToAll::has_padding(int64_t rank) const {
  return length_of(got_.at(static_cast<size_t>(rank))) < part_;
}

std::vector<CopyBox> Shift::boxes(int64_t source, int64_t target) const {
  const int64_t distance = ((target - source - steps_) % ranks_ + ranks_) % ranks_;
  if (distance != 0 || elements_ == 0) return {};
  return {CopyBox{.run = elements_}};
}

bool is_one_message(const std::vector<CopyBox>& boxes, BoxSide CopyBox::*side) {
  return boxes.size() == 1 && boxes[0].is_dense(boxes[0].*side);
}

int64_t total_elements(const std::vector<CopyBox>& boxes) {
  int64_t elements = 0;
  for (const CopyBox& box : boxes) elements += box.elements();
  return elements;
}

int64_t packed_elements(const Transfer& transfer, int64_t ranks) {
  std::vector<int64_t> packed(static_cast<size_t>(ranks), 0);
  for (int64_t source = 0; source < ranks; ++source) {
    for (int64_t target = 0; target < ranks; ++target) {
      if (source == target) continue;
      const std::vector<CopyBox> boxes = transfer.boxes(source, target);
      const int64_t elements = total_elements(boxes);
      if (!is_one_message(boxes, &CopyBox::from)) packed[static_cast<size_t>(source)] += elements;
      if (!is_one_message(boxes, &CopyBox::to)) packed[static_cast<size_t>(target)] += elements;
    }
  }
  return *std::max_element(packed.begin(), packed.end());
}

int64_t packed_message_bytes(const Transfer& transfer, int64_t ranks, DType dtype) {
  constexpr int64_t kAlignment = 16;
  const int64_t bytes = packed_elements(transfer, ranks) * dtype_bytes(dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace weft

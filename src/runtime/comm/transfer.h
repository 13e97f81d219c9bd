// The geometry of collectives that only move data: which elements each rank of a group sends to
// which other. A transport carries out any of them, so a new one is a class here and its kernels.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/kernel.h"

namespace weft {

// One side of a copied box: its first element and the distances between rows and slices.
struct BoxSide {
  int64_t begin = 0;
  int64_t row = 0;
  int64_t slice = 0;
};

// Elements that move together: slices of rows, each row one run of memory on both sides.
struct CopyBox {
  int64_t slices = 1;
  int64_t rows = 1;
  int64_t run = 0;
  BoxSide from = {};
  BoxSide to = {};

  int64_t elements() const { return slices * rows * run; }
  // Whether the elements follow each other in memory on this side.
  bool is_dense(const BoxSide& side) const {
    return (rows == 1 || side.row == run) && (slices == 1 || side.slice == rows * run);
  }
  // A side that holds the box alone, from this element on.
  BoxSide packed_at(int64_t begin) const { return {begin, run, rows * run}; }
};

class Transfer {
 public:
  virtual ~Transfer() = default;

  // What rank `source` of the group sends to rank `target`, in a fixed order; no box is empty.
  virtual std::vector<CopyBox> boxes(int64_t source, int64_t target) const = 0;
  // Whether the result of the rank has padding, which is set to zero.
  virtual bool has_padding(int64_t) const { return false; }
};

// From shards along one dim to shards along another. The padding of operands is not sent.
class AllToAll : public Transfer {
 public:
  struct Dims {
    int64_t from = 0;
    int64_t to = 0;
  };

  // Throws InternalError unless these are the shapes of the shards on one rank.
  AllToAll(const Shape& from, const Shape& to, const Dims& dims, std::string_view axis,
           int64_t ranks);

  std::vector<CopyBox> boxes(int64_t source, int64_t target) const override;
  bool has_padding(int64_t rank) const override;

 private:
  struct Sizes {
    int64_t low = 1;
    int64_t high = 1;
  };
  BoxSide side(const Sizes& sizes, int64_t low, int64_t high) const;

  bool from_is_low_ = true;  // whether the dim of the operands comes first
  int64_t outer_ = 1, middle_ = 1, inner_ = 1;
  Sizes from_, to_;                                // of the two dims in the operand and the result
  int64_t part_ = 1;                               // of the result's shards, with padding
  std::vector<std::vector<DimRange>> sent_, got_;  // by rank
};

// Each rank receives the shard of the rank `steps` before it; the ranks form a ring.
class Shift : public Transfer {
 public:
  Shift(int64_t elements, int64_t steps, int64_t ranks)
      : elements_(elements), steps_(steps), ranks_(ranks) {}

  std::vector<CopyBox> boxes(int64_t source, int64_t target) const override;

 private:
  int64_t elements_ = 0;
  int64_t steps_ = 1;
  int64_t ranks_ = 1;
};

// Elements of the boxes that a transport must copy to one contiguous message, or out of one: those
// to and from other ranks that are not one dense box. The most of any rank.
int64_t packed_elements(const Transfer& transfer, int64_t ranks);

// Bytes that these take in a workspace, where those of each tensor begin at a multiple of 16.
int64_t packed_message_bytes(const Transfer& transfer, int64_t ranks, DType dtype);

// Whether these boxes can be sent or received without packing.
bool is_one_message(const std::vector<CopyBox>& boxes, BoxSide CopyBox::*side);

int64_t total_elements(const std::vector<CopyBox>& boxes);

}  // namespace weft

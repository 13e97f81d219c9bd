// The geometry of collectives: how the members of a flat tensor are sharded over ranks, and how
// much scratch memory an exchange needs when ranks cannot read each other's memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/kernel.h"

namespace weft {

// A part of a member inside a shard of the flat tensor.
struct MemberChunk {
  size_t member = 0;
  int64_t offset = 0;    // in the member
  int64_t position = 0;  // in the shard
  int64_t elements = 0;
};

// The parts of the members in elements [begin, end) of the flat tensor, in order.
std::vector<MemberChunk> member_chunks(std::span<const Tensor> members, int64_t begin, int64_t end);

// A range of elements without a member.
struct Gap {
  int64_t begin = 0;
  int64_t end = 0;
};

// The gaps between the members inside a shard, in order.
std::vector<Gap> gaps_of(std::span<const MemberChunk> chunks, int64_t shard_size);

// One past the last element of the last member.
int64_t flat_end(std::span<const Tensor> members);

// Throws InternalError unless the members have one dtype and `size` shards hold them.
void check_members(std::span<const Tensor> members, const Tensor& shard, int64_t size);

// The same, and the members must be laid out in memory as in the flat tensor.
void check_contiguous(std::span<const Tensor> members);

// The address `elements` elements further on.
void* shifted(const void* data, DType dtype, int64_t elements);

// Up to this size, every rank gathers all parts and computes the full sum itself.
inline constexpr int64_t kSmallSumBytes = int64_t{64} << 10;

// The elements of each rank's slice of a sum; the last slices may be shorter or empty.
int64_t slice_elements(int64_t elements, int64_t ranks);

// Scratch memory for the parts received from other ranks: for the sum of one shard, and for a full
// tensor that all ranks get.
int64_t scatter_workspace(DType dtype, int64_t shard_size, int64_t ranks);
int64_t sum_workspace(DType dtype, int64_t elements, int64_t ranks);

}  // namespace weft

// What the GPU computes itself in a collective: the tree sum of what ranks sent, conversion of a
// shard, zeros between the members of a flat, and marks for the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "plan/kernel.h"
#include "runtime/comm/pieces.h"
#include "runtime/comm/sum.h"

namespace weft::nccl {

// One range of elements on every rank of a group: this rank's own, and those that the others sent,
// one after the other in rank order.
struct Parts {
  Run own;
  void* others = nullptr;
  int64_t rank = 0;  // of this one in the group
  int64_t ranks = 1;
  int64_t elements = 0;
};

// to[i] = sum of element i over the ranks, as the tree of runtime/comm/sum.h, with its bits. `to`
// may be the own range.
void tree_sum(const Parts& parts, const Run& to, cudaStream_t stream);

// Copies n elements, converting between f32, bf16 and f16.
void convert(const Run& from, int64_t n, const Run& to, cudaStream_t stream);

// Zeros in these ranges of a tensor.
void zero(std::span<const Gap> gaps, const Run& to, cudaStream_t stream);

// Writes a number to memory of the host when the stream has come this far.
void note(int64_t* place, int64_t value, cudaStream_t stream);

}  // namespace weft::nccl

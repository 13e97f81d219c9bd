// The GPU kernels that collectives need in addition to NCCL: tree sums of received parts,
// conversion of a shard, zeros in the gaps of a flat tensor, and progress notes for the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "plan/kernel.h"
#include "runtime/comm/flat_layout.h"
#include "runtime/comm/sum.h"

namespace weft::nccl {

// The same range of elements on every rank of a group: this rank's own, and those received from the
// others, stored in rank order.
struct Parts {
  Run own;
  void* others = nullptr;
  int64_t rank = 0;  // of this rank in the group
  int64_t ranks = 1;
  int64_t elements = 0;
};

// to[i] = sum of element i over the ranks, bit-identical to the tree of runtime/comm/sum.h. `to`
// may be this rank's own range.
void tree_sum(const Parts& parts, const Run& to, cudaStream_t stream);

// Copies n elements, converting between f32, bf16 and f16.
void convert(const Run& from, int64_t n, const Run& to, cudaStream_t stream);

// Zeroes these ranges of a tensor.
void zero(std::span<const Gap> gaps, const Run& to, cudaStream_t stream);

// Writes a number to host memory when the stream reaches this point.
void note(int64_t* place, int64_t value, cudaStream_t stream);

}  // namespace weft::nccl

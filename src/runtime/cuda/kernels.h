// The kernel table of the CUDA backend as the planner sees it: which kernels there are, what each
// accepts and how much scratch memory it needs. Plain C++ that every build has, so that a plan for
// a GPU can be made and checked where there is none.
#pragma once

#include <span>

#include "plan/kernel.h"

namespace weft::cuda {

// Longest head the plain attention and rope kernels hold in one block.
inline constexpr int kMaxHeadDim = 256;

// Longest head of the attention kernels that work by tiles.
inline constexpr int64_t kMaxTileDim = 128;

// Scratch memory of one matrix product; its algorithm is chosen under this limit.
inline constexpr int64_t kGemmWorkspace = int64_t{32} << 20;

// Elements a thread of a vector kernel handles at once: 16 bytes of a half type.
inline constexpr int64_t kVector = 8;

// Longest row of a norm, which a block keeps in registers.
inline constexpr int64_t kMaxNormRow = 8192;

// Rows of logits that clusters of blocks keep: longer than one, to at most the other.
inline constexpr int64_t kMinClusterRow = 16384;
inline constexpr int64_t kMaxClusterRow = 524288;

// Longest elementwise chain, and its operands, of the vector kernel.
inline constexpr int kVectorSteps = 8;
inline constexpr int kVectorOperands = 6;

// A sum over rows of n elements is made in this many lanes, of every so many rows: enough for a
// large GPU, in whole rounds of it. It follows from n alone, so that the order of the sums does.
int64_t row_lanes(int64_t n);

// The heads of the largest part of an attention gradient that runs at once, which bounds its
// scratch memory: [samples, key-value heads] of the call.
struct AttentionPart {
  int64_t samples = 1;
  int64_t kv_heads = 1;
};
AttentionPart attention_grad_part(const Call& call);

// The table: rows of one op in order of preference, the last one for every call.
std::span<const Kernel> kernels();

}  // namespace weft::cuda

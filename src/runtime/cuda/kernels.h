// The kernel table of the CUDA backend, and the limits that its rows and kernels share. Plain C++
// in every build, so that a plan for a GPU can be made and checked without one.
#pragma once

#include <span>

#include "plan/kernel.h"

namespace weft::cuda {

// Longest head that the plain attention, rope and qk_norm kernels hold in one block.
inline constexpr int kMaxHeadDim = 256;

// Longest head of the tiled attention kernels.
inline constexpr int64_t kMaxTileDim = 128;

// Scratch memory of one matmul; its algorithm is chosen within this limit.
inline constexpr int64_t kGemmWorkspace = int64_t{32} << 20;

// Elements per thread and access of a vector kernel: 16 bytes of a half type.
inline constexpr int64_t kVector = 8;

// Longest row of a norm that a block keeps in registers.
inline constexpr int64_t kMaxNormRow = 8192;

// Number of lanes of a sum over rows of n elements; lane l adds rows l, l + lanes, ... It fills a
// large GPU in full waves and depends on n alone, so the order of the sum does too.
int64_t row_lanes(int64_t n);

// Blocks of a qk_norm gradient, each of which adds its part of the sums over rows and heads.
inline constexpr int kQkNormLanes = 528;

// Tokens per block of the router, and the bytes of shared memory that rank their experts.
inline constexpr int kRouterWarps = 4;
int64_t router_shared(const Call& call);

// The choices of a source are sorted in chunks.
inline constexpr int64_t kRouteChunk = 1024;
inline constexpr int kMaxRouteExperts = 1024;
int64_t route_chunks(const Call& call);

// Most groups of rows, one per source and expert, of a grouped matmul.
inline constexpr int64_t kMaxRowGroups = 4096;

// Most sources of a grouped weight gradient: two to the levels of the tree over them.
inline constexpr int kSourceLevels = 8;

// The largest part of an attention gradient that runs at once, which bounds its scratch memory:
// samples and key-value heads of the call.
struct AttentionPart {
  int64_t samples = 1;
  int64_t kv_heads = 1;
};
AttentionPart attention_grad_part(const Call& call);

// The table: rows of one op in order of preference.
std::span<const Kernel> kernels();

}  // namespace weft::cuda

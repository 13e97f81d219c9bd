// Strided copies on a GPU's stream: NCCL sends contiguous memory only, so shards along an inner dim
// are packed before and unpacked after.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "plan/kernel.h"
#include "runtime/comm/dim_layout.h"
#include "runtime/comm/transfer.h"

namespace weft::nccl {

enum class CopyOrder { Pack, Unpack };

// Copies a rank's ranges of a tensor sharded along a dim to its packed shard, or back.
void copy_shard(const Tensor& full, void* shard, const DimLayout& layout, int64_t rank,
                CopyOrder order, cudaStream_t stream);

// Zeroes what a rank's shard has beyond the end of the dim.
void zero_padding(const Tensor& shard, const DimLayout& layout, int64_t rank, cudaStream_t stream);

// Copies one box of a transfer between two buffers of this GPU.
void copy_box(const CopyBox& box, void* to, const void* from, DType dtype, cudaStream_t stream);

}  // namespace weft::nccl

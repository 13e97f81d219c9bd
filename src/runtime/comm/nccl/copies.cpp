#include "runtime/comm/nccl/copies.h"

#include <algorithm>
#include <limits>

#include "runtime/comm/flat_layout.h"
#include "runtime/cuda/device/check.h"

namespace weft::nccl {
namespace {

// Rows of a strided copy: `bytes` of each, at these distances.
struct Rows {
  int64_t count = 0;
  int64_t bytes = 0;
};

struct Strided {
  void* data = nullptr;
  int64_t stride = 0;  // bytes
};

// The longest stride of a two-dimensional copy.
constexpr int64_t kLongestPitch = std::numeric_limits<int32_t>::max();

void copy_rows(const Strided& to, const Strided& from, const Rows& rows, cudaStream_t stream) {
  if (rows.count == 0 || rows.bytes == 0) return;
  const auto bytes = static_cast<size_t>(rows.bytes);
  if (rows.count > 1 && std::max(to.stride, from.stride) <= kLongestPitch) {
    CUDA_CHECK(cudaMemcpy2DAsync(
        to.data, static_cast<size_t>(to.stride), from.data, static_cast<size_t>(from.stride), bytes,
        static_cast<size_t>(rows.count), cudaMemcpyDeviceToDevice, stream));
    return;
  }
  for (int64_t i = 0; i < rows.count; ++i) {
    CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(to.data) + i * to.stride,
                               static_cast<const char*>(from.data) + i * from.stride, bytes,
                               cudaMemcpyDeviceToDevice, stream));
  }
}

}  // namespace

void copy_shard(const Tensor& full, void* shard, const DimLayout& layout, int64_t rank,
                CopyOrder order, cudaStream_t stream) {
  const int64_t element = dtype_bytes(full.dtype);
  int64_t at = 0;
  for (const DimRange& range : layout.ranges(rank)) {
    const Strided in_full{shifted(full.data, full.dtype, layout.in_full(0, range.begin)),
                          layout.in_full(1, 0) * element};
    const Strided in_shard{shifted(shard, full.dtype, layout.in_shard(0, at)),
                           layout.in_shard(1, 0) * element};
    const Rows rows{layout.outer(), range.size * layout.inner() * element};
    const bool packs = order == CopyOrder::Pack;
    copy_rows(packs ? in_shard : in_full, packs ? in_full : in_shard, rows, stream);
    at += range.size;
  }
}

void zero_padding(const Tensor& shard, const DimLayout& layout, int64_t rank, cudaStream_t stream) {
  const int64_t filled = layout.length(rank) * layout.inner();
  const int64_t element = dtype_bytes(shard.dtype);
  const int64_t stride = layout.in_shard(1, 0) * element;
  const int64_t bytes = stride - filled * element;
  if (bytes == 0) return;
  if (layout.outer() > 1 && stride <= kLongestPitch) {
    CUDA_CHECK(cudaMemset2DAsync(shifted(shard.data, shard.dtype, filled),
                                 static_cast<size_t>(stride), 0, static_cast<size_t>(bytes),
                                 static_cast<size_t>(layout.outer()), stream));
    return;
  }
  for (int64_t row = 0; row < layout.outer(); ++row) {
    CUDA_CHECK(cudaMemsetAsync(shifted(shard.data, shard.dtype, layout.in_shard(row, 0) + filled),
                               0, static_cast<size_t>(bytes), stream));
  }
}

void copy_box(const CopyBox& box, void* to, const void* from, DType dtype, cudaStream_t stream) {
  const int64_t element = dtype_bytes(dtype);
  const int64_t longest = std::max(box.from.row, box.to.row) * element;
  void* target = shifted(to, dtype, box.to.begin);
  void* source = shifted(from, dtype, box.from.begin);
  if (box.slices == 1 || longest > kLongestPitch) {
    for (int64_t slice = 0; slice < box.slices; ++slice) {
      copy_rows({shifted(target, dtype, slice * box.to.slice), box.to.row * element},
                {shifted(source, dtype, slice * box.from.slice), box.from.row * element},
                {box.rows, box.run * element}, stream);
    }
    return;
  }
  // A slice is a number of rows on both sides.
  const auto pitched = [&](void* data, const BoxSide& side) {
    return cudaPitchedPtr{.ptr = data,
                          .pitch = static_cast<size_t>(side.row * element),
                          .xsize = static_cast<size_t>(box.run * element),
                          .ysize = static_cast<size_t>(side.slice / side.row)};
  };
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = pitched(source, box.from);
  copy.dstPtr = pitched(target, box.to);
  copy.extent = {.width = static_cast<size_t>(box.run * element),
                 .height = static_cast<size_t>(box.rows),
                 .depth = static_cast<size_t>(box.slices)};
  copy.kind = cudaMemcpyDeviceToDevice;
  CUDA_CHECK(cudaMemcpy3DAsync(&copy, stream));
}

}  // namespace weft::nccl

// split_time and concat_time: copies of contiguous memory, one per sample and chunk. split_columns
// and concat_columns: the same, one per row.
#include <algorithm>
#include <limits>

#include "runtime/cuda/device/check.h"
#include "runtime/cuda/device/stream.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

// The layout of one chunk: a row per sample.
struct Chunk {
  int64_t samples = 0;
  int64_t bytes = 0;       // per sample of the chunk
  int64_t full_bytes = 0;  // per sample of the full tensor
};

// A chunk of each of `shards` parts of a sample.
Chunk chunk_of(const Tensor& chunk, int64_t parts, int64_t shards = 1) {
  const int64_t samples = chunk.shape.at(0) * shards;
  const int64_t bytes = chunk.elements() / samples * dtype_bytes(chunk.dtype);
  return {samples, bytes, bytes * parts};
}

// Columns of a packed tensor.
Chunk columns_of(const Tensor& part, const Tensor& packed) {
  const int64_t element = dtype_bytes(part.dtype);
  return {row_count(part), row_length(part) * element, row_length(packed) * element};
}

// The longest stride of a two-dimensional copy.
constexpr int64_t kLongestPitch = std::numeric_limits<int32_t>::max();

void copy_rows(void* to, int64_t to_stride, const void* from, int64_t from_stride,
               const Chunk& chunk, cudaStream_t stream) {
  if (std::max(to_stride, from_stride) > kLongestPitch) {
    for (int64_t i = 0; i < chunk.samples; ++i) {
      CUDA_CHECK(cudaMemcpyAsync(
          static_cast<char*>(to) + i * to_stride, static_cast<const char*>(from) + i * from_stride,
          static_cast<size_t>(chunk.bytes), cudaMemcpyDeviceToDevice, stream));
    }
    return;
  }
  CUDA_CHECK(cudaMemcpy2DAsync(to, static_cast<size_t>(to_stride), from,
                               static_cast<size_t>(from_stride), static_cast<size_t>(chunk.bytes),
                               static_cast<size_t>(chunk.samples), cudaMemcpyDeviceToDevice,
                               stream));
}

}  // namespace

void launch_split_time(const Launch& launch) {
  const Tensor& y = launch.results.at(0);
  const Chunk chunk = chunk_of(y, launch.call->int_attr("parts"), launch.call->int_attr("shards"));
  const char* from =
      launch.operands.at(0).as<const char>() + launch.call->int_attr("index") * chunk.bytes;
  copy_rows(y.data, chunk.bytes, from, chunk.full_bytes, chunk, stream_of(launch));
}

void launch_split_columns(const Launch& launch) {
  const Tensor& packed = launch.operands.at(0);
  const char* from = packed.as<const char>();
  for (const Tensor& part : launch.results) {
    const Chunk chunk = columns_of(part, packed);
    copy_rows(part.data, chunk.bytes, from, chunk.full_bytes, chunk, stream_of(launch));
    from += chunk.bytes;
  }
}

void launch_concat_columns(const Launch& launch) {
  const Tensor& packed = launch.results.at(0);
  char* to = packed.as<char>();
  for (const Tensor& part : launch.operands) {
    const Chunk chunk = columns_of(part, packed);
    copy_rows(to, chunk.full_bytes, part.data, chunk.bytes, chunk, stream_of(launch));
    to += chunk.bytes;
  }
}

void launch_concat_time(const Launch& launch) {
  const auto parts = static_cast<int64_t>(launch.operands.size());
  for (int64_t i = 0; i < parts; ++i) {
    const Tensor& x = launch.operands.at(static_cast<size_t>(i));
    const Chunk chunk = chunk_of(x, parts, launch.call->int_attr("shards"));
    char* to = launch.results.at(0).as<char>() + i * chunk.bytes;
    copy_rows(to, chunk.full_bytes, x.data, chunk.bytes, chunk, stream_of(launch));
  }
}

}  // namespace weft::cuda

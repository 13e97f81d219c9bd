// split_time and join_time: copies of contiguous memory, one per sample and chunk.
#include <algorithm>
#include <limits>

#include "runtime/cuda/device/check.h"
#include "runtime/cuda/device/stream.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

// The layout of one chunk: a row per sample.
struct Piece {
  int64_t samples = 0;
  int64_t bytes = 0;        // per sample of the chunk
  int64_t whole_bytes = 0;  // per sample of the full tensor
};

Piece piece_of(const Tensor& piece, int64_t parts) {
  const int64_t samples = piece.shape.at(0);
  const int64_t bytes = piece.elements() / samples * dtype_bytes(piece.dtype);
  return {samples, bytes, bytes * parts};
}

// The longest stride of a two-dimensional copy.
constexpr int64_t kLongestPitch = std::numeric_limits<int32_t>::max();

void copy_rows(void* to, int64_t to_stride, const void* from, int64_t from_stride,
               const Piece& piece, cudaStream_t stream) {
  if (std::max(to_stride, from_stride) > kLongestPitch) {
    for (int64_t i = 0; i < piece.samples; ++i) {
      CUDA_CHECK(cudaMemcpyAsync(
          static_cast<char*>(to) + i * to_stride, static_cast<const char*>(from) + i * from_stride,
          static_cast<size_t>(piece.bytes), cudaMemcpyDeviceToDevice, stream));
    }
    return;
  }
  CUDA_CHECK(cudaMemcpy2DAsync(to, static_cast<size_t>(to_stride), from,
                               static_cast<size_t>(from_stride), static_cast<size_t>(piece.bytes),
                               static_cast<size_t>(piece.samples), cudaMemcpyDeviceToDevice,
                               stream));
}

}  // namespace

void launch_split_time(const Launch& launch) {
  const Tensor& y = launch.results.at(0);
  const Piece piece = piece_of(y, launch.call->int_attr("parts"));
  const char* from =
      launch.operands.at(0).as<const char>() + launch.call->int_attr("index") * piece.bytes;
  copy_rows(y.data, piece.bytes, from, piece.whole_bytes, piece, stream_of(launch));
}

void launch_join_time(const Launch& launch) {
  const auto parts = static_cast<int64_t>(launch.operands.size());
  for (int64_t i = 0; i < parts; ++i) {
    const Tensor& x = launch.operands.at(static_cast<size_t>(i));
    const Piece piece = piece_of(x, parts);
    char* to = launch.results.at(0).as<char>() + i * piece.bytes;
    copy_rows(to, piece.whole_bytes, x.data, piece.bytes, piece, stream_of(launch));
  }
}

}  // namespace weft::cuda

// The result is written in full vectors wherever its rows begin, since it has no gaps. Each vector
// is assembled from the two aligned vectors that contain its elements. At the ends of a row, and
// where those two would reach outside the source, it is gathered one element at a time.
#include "runtime/cuda/gemm/pitched_rows.h"

#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

constexpr int kAtOnce = 4;  // vectors that a thread has in flight
constexpr int kSegment = kThreads * kAtOnce * kLanes;

// Eight elements that begin `offset` bytes into two adjacent vectors.
struct Window {
  uint4 low;
  uint4 high;
  unsigned offset;

  __device__ uint4 elements() const {
    uint32_t word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) word[i] = (offset & 8) != 0 ? word[i + 2] : word[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) word[i] = (offset & 4) != 0 ? word[i + 1] : word[i];
    const unsigned bits = (offset & 2) * 8;
    return make_uint4(
        __funnelshift_r(word[0], word[1], bits), __funnelshift_r(word[1], word[2], bits),
        __funnelshift_r(word[2], word[3], bits), __funnelshift_r(word[3], word[4], bits));
  }
};

__device__ uint4 gathered(const RowCopy& copy, int64_t row, int64_t column) {
  uint32_t pair[kLanes / 2] = {};
#pragma unroll
  for (int i = 0; i < kLanes; ++i, ++column) {
    for (; column >= copy.to_pitch; column -= copy.to_pitch) ++row;
    if (row >= copy.rows || column >= copy.length) continue;
    const uint32_t value = static_cast<const uint16_t*>(copy.from)[row * copy.from_pitch + column];
    pair[i / 2] |= value << (16 * (i % 2));
  }
  return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

__device__ Window load(const RowCopy& copy, int64_t row, int64_t column) {
  const uint16_t* begin = static_cast<const uint16_t*>(copy.from);
  const uint16_t* end = begin + (copy.rows - 1) * copy.from_pitch + copy.length;
  if (row < copy.rows && column + kLanes <= copy.length) {
    const uint16_t* at = begin + row * copy.from_pitch + column;
    const auto offset = static_cast<unsigned>(reinterpret_cast<uintptr_t>(at) % sizeof(uint4));
    const uint16_t* aligned = at - offset / sizeof(uint16_t);
    const int last = offset == 0 ? 0 : 1;  // the vector that contains the eighth element
    if (aligned >= begin && aligned + (last + 1) * kLanes <= end) {
      const uint4* vector = reinterpret_cast<const uint4*>(aligned);
      return {vector[0], vector[last], offset};
    }
  }
  return {gathered(copy, row, column), {}, 0};
}

__global__ void __launch_bounds__(kThreads) copy_segment(RowCopy copy) {
  const int64_t total = copy.to_rows * copy.to_pitch;
  const int64_t start = static_cast<int64_t>(blockIdx.x) * kSegment;
  const int64_t start_row = start / copy.to_pitch;
  const auto start_column = static_cast<uint32_t>(start - start_row * copy.to_pitch);
  const auto pitch = static_cast<uint32_t>(copy.to_pitch);
  Window window[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const uint32_t along = (i * kThreads + threadIdx.x) * kLanes;
    const uint32_t column = start_column + along;
    if (start + along < total) window[i] = load(copy, start_row + column / pitch, column % pitch);
  }
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int64_t at = start + (i * kThreads + threadIdx.x) * kLanes;
    if (at >= total) continue;
    uint16_t* to = static_cast<uint16_t*>(copy.to) + at;
    const uint4 value = window[i].elements();
    if (at + kLanes <= total) {
      *reinterpret_cast<uint4*>(to) = value;
      continue;
    }
    const uint32_t pair[kLanes / 2] = {value.x, value.y, value.z, value.w};
#pragma unroll
    for (int j = 0; j < kLanes; ++j) {
      if (at + j < total) to[j] = static_cast<uint16_t>(pair[j / 2] >> (16 * (j % 2)));
    }
  }
}

}  // namespace

void copy_rows(const RowCopy& copy, cudaStream_t stream) {
  CHECK(reinterpret_cast<uintptr_t>(copy.to) % sizeof(uint4) == 0, "rows begin at ", copy.to);
  CHECK(copy.to_pitch < INT32_MAX, "rows of ", copy.to_pitch, " elements");
  const unsigned blocks = blocks_for(copy.to_rows * copy.to_pitch, kSegment);
  copy_segment<<<blocks, kThreads, 0, stream>>>(copy);
}

}  // namespace weft::cuda

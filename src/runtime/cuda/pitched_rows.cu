// One element a time, as rows begin anywhere; a thread has several under way.
#include "runtime/cuda/pitched_rows.h"

#include "runtime/cuda/elements.h"

namespace weft::cuda {

namespace {

constexpr int kAtOnce = 8;                    // elements of a thread
constexpr int kSegment = kThreads * kAtOnce;  // of a row, for one block

__global__ void copy_segment(RowCopy copy, int64_t segments) {
  const int64_t row = blockIdx.x / segments;
  const int64_t first = blockIdx.x % segments * kSegment + threadIdx.x;
  const uint16_t* from = static_cast<const uint16_t*>(copy.from) + row * copy.from_pitch;
  uint16_t* to = static_cast<uint16_t*>(copy.to) + row * copy.to_pitch;
  uint16_t value[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int64_t at = first + i * kThreads;
    if (at < copy.length) value[i] = from[at];
  }
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int64_t at = first + i * kThreads;
    if (at < copy.length) to[at] = value[i];
  }
}

}  // namespace

void copy_rows(const RowCopy& copy, cudaStream_t stream) {
  const int64_t segments = (copy.length + kSegment - 1) / kSegment;
  copy_segment<<<blocks_for(copy.rows * segments, 1), kThreads, 0, stream>>>(copy, segments);
}

}  // namespace weft::cuda

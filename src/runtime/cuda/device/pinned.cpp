// A copy goes through the two blocks in turn, one part at a time.
#include "runtime/cuda/device/pinned.h"

#include <algorithm>
#include <cstring>

#include "runtime/cuda/device/check.h"

namespace weft::cuda {

namespace {

constexpr int64_t kBlockBytes = int64_t{8} << 20;

// One part of a copy.
struct Part {
  int64_t begin = 0;
  size_t bytes = 0;
};

Part part_of(int64_t bytes, int64_t index) {
  const int64_t begin = index * kBlockBytes;
  return {begin, static_cast<size_t>(std::min(kBlockBytes, bytes - begin))};
}

int64_t parts_of(int64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes;
}

}  // namespace

PinnedBlocks::Block::Block() {
  CUDA_CHECK(cudaMallocHost(&memory, kBlockBytes));
}

PinnedBlocks::Block::~Block() {
  cudaFreeHost(memory);
}

PinnedBlocks::PinnedBlocks(cudaStream_t stream) : stream_(stream) {}

cudaError_t PinnedBlocks::copy_in(void* device, const void* host, int64_t bytes) {
  cudaError_t error = cudaSuccess;
  for (int64_t i = 0; i < parts_of(bytes) && error == cudaSuccess; ++i) {
    const Part part = part_of(bytes, i);
    const Block& block = blocks_[i % 2];
    error = cudaEventSynchronize(block.copied.handle());
    if (error != cudaSuccess) break;
    std::memcpy(block.memory, static_cast<const char*>(host) + part.begin, part.bytes);
    error = cudaMemcpyAsync(static_cast<char*>(device) + part.begin, block.memory, part.bytes,
                            cudaMemcpyHostToDevice, stream_);
    if (error == cudaSuccess) error = cudaEventRecord(block.copied.handle(), stream_);
  }
  return error;
}

cudaError_t PinnedBlocks::copy_out(void* host, const void* device, int64_t bytes) {
  cudaError_t error = cudaSuccess;
  const int64_t parts = parts_of(bytes);
  // The host empties a block while the GPU fills the next one.
  for (int64_t i = 0; i <= parts && error == cudaSuccess; ++i) {
    if (i < parts) {
      const Part part = part_of(bytes, i);
      const Block& block = blocks_[i % 2];
      error = cudaMemcpyAsync(block.memory, static_cast<const char*>(device) + part.begin,
                              part.bytes, cudaMemcpyDeviceToHost, stream_);
      if (error == cudaSuccess) error = cudaEventRecord(block.copied.handle(), stream_);
    }
    if (i > 0 && error == cudaSuccess) {
      const Part part = part_of(bytes, i - 1);
      const Block& block = blocks_[(i - 1) % 2];
      error = cudaEventSynchronize(block.copied.handle());
      if (error == cudaSuccess) {
        std::memcpy(static_cast<char*>(host) + part.begin, block.memory, part.bytes);
      }
    }
  }
  return error;
}

}  // namespace weft::cuda

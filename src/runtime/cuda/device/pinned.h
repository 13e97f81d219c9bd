// Page-locked host memory as a staging buffer for copies: the GPU accesses one of two blocks at bus
// speed, while the host fills or empties the other.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "runtime/cuda/device/stream.h"

namespace weft::cuda {

class PinnedBlocks {
 public:
  explicit PinnedBlocks(cudaStream_t stream);

  // Queue copies on the stream and return the first error. copy_in returns when `host` has been
  // read; copy_out when it has been written, after all earlier work of the stream.
  cudaError_t copy_in(void* device, const void* host, int64_t bytes);
  cudaError_t copy_out(void* host, const void* device, int64_t bytes);

 private:
  struct Block {
    Block();
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    CudaEvent copied;  // the last copy to or from it
    void* memory = nullptr;
  };

  cudaStream_t stream_;
  Block blocks_[2];
};

}  // namespace weft::cuda

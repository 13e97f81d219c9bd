#include "runtime/cuda/device/pause.h"

namespace weft::cuda {

namespace {

constexpr long long kCycles = 200'000;  // a tenth of a millisecond

__global__ void pause() {
  const long long start = clock64();
  while (clock64() - start < kCycles) {
  }
}

}  // namespace

void launch_pause(cudaStream_t stream) {
  pause<<<1, 1, 0, stream>>>();
}

}  // namespace weft::cuda

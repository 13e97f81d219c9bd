#include "runtime/cuda/device/delay_kernel.h"

namespace weft::cuda {

namespace {

constexpr long long kCycles = 200'000;  // a tenth of a millisecond

__global__ void delay() {
  const long long start = clock64();
  while (clock64() - start < kCycles) {
  }
}

}  // namespace

void launch_delay(cudaStream_t stream) {
  delay<<<1, 1, 0, stream>>>();
}

}  // namespace weft::cuda

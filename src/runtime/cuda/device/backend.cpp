// The parts of the CUDA backend: a kernel table that every build can read, and a device.
#include "runtime/cuda/device/backend.h"

#include "runtime/cuda/device/device.h"
#include "runtime/cuda/kernels.h"

namespace weft {

const Backend& cuda_backend() {
  static constexpr Backend kBackend{
      .name = "cuda", .kernels = cuda::kernels, .make_device = cuda::make_device};
  return kBackend;
}

}  // namespace weft

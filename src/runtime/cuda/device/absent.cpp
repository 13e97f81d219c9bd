// Compiled in place of the GPU code when the build has no CUDA compiler: plans can be made but not
// run.
#include "base/error.h"
#include "runtime/cuda/device/device.h"

namespace weft::cuda {

std::unique_ptr<Device> make_device(const DeviceOptions&) {
  throw DeviceError(
      "cuda: this build can plan for a GPU but not run on one; build with -DWEFT_CUDA=on where "
      "nvcc is, or use the backend cpu",
      ExitCode::Config);
}

}  // namespace weft::cuda

// Compiled in place of the GPU code when the build has no CUDA compiler: plans can be made but not
// run.
#include "base/error.h"
#include "runtime/cuda/device/device.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

[[noreturn]] void refuse() {
  throw DeviceError(
      "cuda: this build can plan for a GPU but not run on one; build with -DWEFT_CUDA=on where "
      "nvcc is, or use the backend cpu",
      ExitCode::Config);
}

}  // namespace

void (*find_launch(std::string_view))(const Launch&) {
  return [](const Launch&) { refuse(); };
}

std::unique_ptr<Device> make_device(const DeviceOptions&) {
  refuse();
}

}  // namespace weft::cuda

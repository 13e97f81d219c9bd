// Compiled in place of the transport when the build has no CUDA compiler.
#include "base/error.h"
#include "runtime/comm/nccl/connect.h"

namespace weft {

std::unique_ptr<Communicator> connect_gpus(std::unique_ptr<Communicator>, const ConnectOptions&) {
  throw DeviceError(
      "cuda: this build can plan for a GPU but not run on one; build with -DWEFT_CUDA=on where "
      "nvcc is, or use the backend cpu",
      ExitCode::Config);
}

}  // namespace weft

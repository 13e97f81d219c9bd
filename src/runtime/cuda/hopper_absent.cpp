// Compiled in place of Hopper's kernels for other GPUs: their rows of the table take no call.
#include "base/error.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

void launch_hopper_attention_grad(const Launch&) {
  CHECK(false, "a kernel for Hopper in a build for other GPUs");
}

}  // namespace weft::cuda

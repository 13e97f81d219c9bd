// Compiled in place of Hopper's kernels for other GPUs.
#include "runtime/cuda/device/probe.h"

namespace weft::cuda {

bool has_hopper_code_for_this_gpu() {
  return true;
}

}  // namespace weft::cuda

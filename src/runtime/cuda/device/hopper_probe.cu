// An empty kernel, compiled with the flags of the Hopper kernels.
#include "runtime/cuda/device/probe.h"

namespace weft::cuda {

namespace {

__global__ void hopper_probe() {}

}  // namespace

bool has_hopper_code_for_this_gpu() {
  return has_code_of(reinterpret_cast<const void*>(hopper_probe));
}

}  // namespace weft::cuda

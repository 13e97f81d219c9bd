// Asks the driver for an empty kernel, which exists only if the build has code for this GPU.
#include <cuda_runtime_api.h>

#include "runtime/cuda/device/probe.h"

namespace weft::cuda {

namespace {

__global__ void probe() {}

}  // namespace

bool has_code_of(const void* kernel) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  cudaGetLastError();  // clears the error: a missing kernel does not harm the context
  return error == cudaSuccess;
}

bool has_code_for_this_gpu() {
  return has_code_of(reinterpret_cast<const void*>(probe));
}

}  // namespace weft::cuda

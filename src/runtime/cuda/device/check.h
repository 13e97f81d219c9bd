// Turns a failed CUDA call into a DeviceError with the call and the library's message.
#pragma once

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace weft::cuda {

// Throws DeviceError "cuda: <what> failed: <message> (<name>)".
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* what);

#define CUDA_CHECK(call)                                       \
  do {                                                         \
    const cudaError_t cuda_check_error = (call);               \
    if (cuda_check_error != cudaSuccess) {                     \
      ::weft::cuda::throw_cuda_error(cuda_check_error, #call); \
    }                                                          \
  } while (false)

}  // namespace weft::cuda
